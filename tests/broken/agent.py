"""A lock agent: a process beside the job that takes the lock and renews it, as a sidecar or a lock daemon does.

A thread of a living process does the same to a lock; a process of its own shows it after its worker has ended, too.
"""

from __future__ import annotations

import os
import secrets
import select

import redis

from harness.subject import Job
from tests.broken.shop import EXTEND, RELEASE, connect

GRANTED, RELEASE_IT = b"g", b"r"


class Agent:
    """heeds_early_stop: a release that comes before the grant is heeded. dies_with_job: the job's end is heeded."""

    def __init__(self, job: Job, *, heeds_early_stop: bool = True, dies_with_job: bool = True) -> None:
        self._answers, answers = os.pipe()
        orders, self._orders = os.pipe()
        if os.fork() == 0:
            os.close(self._orders)
            try:
                _serve(job, orders, answers, heeds_early_stop=heeds_early_stop, dies_with_job=dies_with_job)
            except redis.RedisError:
                pass  # Redis is not there any more: nothing is left to renew
            finally:
                os._exit(0)
        os.close(orders)

    def acquired(self, timeout_s: float) -> bool:
        """Whether the lock was granted in time."""
        return bool(select.select([self._answers], [], [], timeout_s)[0])

    def release(self) -> None:
        os.write(self._orders, RELEASE_IT)


def _serve(job: Job, orders: int, answers: int, *, heeds_early_stop: bool, dies_with_job: bool) -> None:
    store, lock, owner = connect(job), f"lock:{job.customer}", secrets.token_hex(16)
    while not store.set(lock, owner, nx=True, px=job.lock_ttl_ms):
        if _order(orders, job.lease_s / 12) is not None:
            return
    early = _order(orders, 0)
    if early is not None and heeds_early_stop:
        store.eval(RELEASE, 1, lock, owner)
        return
    os.write(answers, GRANTED)
    while True:
        order = _order(orders, job.lease_s / 3)
        if order == RELEASE_IT or (order == b"" and dies_with_job):
            store.eval(RELEASE, 1, lock, owner)
            return
        if order == b"":
            select.select([], [], [], job.lease_s / 3)
        store.eval(EXTEND, 1, lock, owner, job.lock_ttl_ms)


def _order(orders: int, timeout_s: float) -> bytes | None:
    """An order, b"" when the job has ended, None when nothing was said in time."""
    return os.read(orders, 1) if select.select([orders], [], [], timeout_s)[0] else None
