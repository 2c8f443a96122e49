"""What the broken locks on several Redis nodes share: a quorum lock that is sound but for what a subject changes.

It asks every node for the lock, counts who grants it, and has it with a majority, renewed as the built-in watchdog does
(redis.io: Distributed Locks with Redis, the Redlock algorithm). run is the sound one: what is caught in the others is
their bug.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from harness.subject import Job, poll
from tests.broken.shop import RELEASE, Watchdog, bill, clock, connect

Ask = Callable[[redis.Redis], Any]


class Quorum:
    """Several nodes, asked as one: what most of them say is the answer."""

    def __init__(self, job: Job) -> None:
        self.nodes = [
            redis.Redis.from_url(
                url, retry=Retry(NoBackoff(), 0), socket_timeout=job.lease_s / 5, socket_connect_timeout=job.lease_s / 5
            )
            for url in job.redis_urls
        ]
        self.majority = len(self.nodes) // 2 + 1

    def ask(self, ask: Ask) -> list[Any]:
        """What each node answers; the error where one does not."""
        answers: list[Any] = []
        for node in self.nodes:
            try:
                answers.append(ask(node))
            except redis.RedisError as error:
                answers.append(error)
        return answers

    def acquire(self, lock: str, owner: str, lease_ms: int) -> bool:
        """Whether most nodes granted the lock; those that did let it go again where it was not enough."""
        granted = self.ask(lambda node: node.set(lock, owner, nx=True, px=lease_ms))
        if granted.count(True) >= self.majority:
            return True
        self.release(lock, owner)
        return False

    def eval(self, script: str, keys: int, *args: Any) -> int:
        """1 when most nodes say so, 0 when so many say no that no majority can be left. Raises ConnectionError else."""
        answers = self.ask(lambda node: node.eval(script, keys, *args))
        if answers.count(1) >= self.majority:
            return 1
        if answers.count(0) > len(self.nodes) - self.majority:
            return 0
        raise redis.ConnectionError(f"too few nodes answered: {answers}")

    def release(self, lock: str, owner: str) -> None:
        """Lets the lock go wherever it is."""
        self.ask(lambda node: node.eval(RELEASE, 1, lock, owner))


def charge_once(job: Job, quorum: Quorum) -> None:
    """The whole job, under a lock on all nodes; what is paid is kept on the first."""
    lock, owner = f"lock:{job.customer}", secrets.token_hex(16)

    def attempt() -> float | None:
        asked_at = clock()
        return asked_at if quorum.acquire(lock, owner, job.lock_ttl_ms) else None

    watchdog = Watchdog(quorum, lock, owner, job.lock_ttl_ms, poll(job, attempt) or 0)  # type: ignore[arg-type]
    try:
        bill(job, connect(job), check=watchdog.check)
    finally:
        watchdog.stop()
        quorum.release(lock, owner)


def run(job: Job) -> None:
    charge_once(job, Quorum(job))
