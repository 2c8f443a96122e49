"""What the broken subjects share: the parts of a billing job that are not the bug.

The lock is the built-in watchdog's, sound but for what a subject changes, so that the same fault at the same place
finds one charge with the built-in variant and two (or none) with the subject: what is caught is the bug.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis

from harness.subject import Job, Processor, Refused, poll, say
from harness.variants.fencing import ACQUIRE
from harness.variants.naive_ttl import RELEASE, connect
from harness.variants.watchdog import EXTEND, LeaseLost, Watchdog, clock

__all__ = [
    "EXTEND", "RELEASE", "Holding", "LeaseLost", "Watchdog",
    "bill", "clock", "connect", "fenced", "locked", "poll", "release_if_owner", "say", "set_nx_px",
]  # fmt: skip

Acquire = Callable[[redis.Redis, str, str, int], Any]
"""(store, lock, owner, lease in ms) -> something true when the lock was granted."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A lock that is held: its key, its owner's mark, what the acquire answered, and the watchdog that renews it."""

    store: redis.Redis
    lock: str
    owner: str
    granted: Any
    watchdog: Watchdog


def set_nx_px(store: redis.Redis, lock: str, owner: str, lease_ms: int) -> Any:
    """The usual acquire."""
    return store.set(lock, owner, nx=True, px=lease_ms)


def release_if_owner(holding: Holding) -> None:
    """The usual release: another owner's lock is left alone."""
    holding.store.eval(RELEASE, 1, holding.lock, holding.owner)


@contextmanager
def locked(
    job: Job,
    *,
    acquire: Acquire = set_nx_px,
    watchdog: type[Watchdog] = Watchdog,
    release: Callable[[Holding], object] = release_if_owner,
) -> Iterator[Holding]:
    """Holds the customer's lock, renewed. A subject replaces the part that is its bug."""
    store, lock, owner = connect(job), f"lock:{job.customer}", secrets.token_hex(16)

    def attempt() -> tuple[Any, float] | None:
        asked_at = clock()
        granted = acquire(store, lock, owner, job.lock_ttl_ms)
        return (granted, asked_at) if granted else None

    granted, asked_at = poll(job, attempt) or (None, 0.0)
    holding = Holding(store, lock, owner, granted, watchdog(store, lock, owner, job.lock_ttl_ms, asked_at))
    say("acquired", owner=owner)
    try:
        yield holding
    finally:
        holding.watchdog.stop()
        release(holding)


def bill(
    job: Job,
    store: redis.Redis,
    *,
    check: Callable[[], object] = lambda: None,
    charge: Callable[[], dict[str, Any]] | None = None,
) -> None:
    """Paid already? Else charge and record it. check comes right before the charge, and raises to stop it."""
    paid = f"paid:{job.invoice}"
    if store.get(paid):
        say("already-paid")
        return
    check()
    try:
        store.set(paid, (charge or Processor(job).charge)()["id"])
    except Refused as refused:
        say("refused", code=refused.code)


def fenced(job: Job, release: Callable[[Holding], object]) -> None:
    """The built-in watchdog-fencing, but for its release."""

    def acquire(store: redis.Redis, lock: str, owner: str, lease_ms: int) -> Any:
        return store.eval(ACQUIRE, 2, lock, f"fence:{job.customer}", owner, lease_ms)

    with locked(job, acquire=acquire, release=release) as lock:
        token = int(lock.granted)
        bill(job, lock.store, check=lock.watchdog.check, charge=lambda: Processor(job).charge(token=token))
