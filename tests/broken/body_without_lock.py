"""redis-py#621; redlock-ng, redlock-rb, django-pglock: the with-block runs its body although it has no lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis

from harness.subject import Job
from tests.broken.shop import Holding as Held
from tests.broken.shop import Watchdog, bill, clock, connect, release_if_owner


@contextmanager
def lock(store: redis.Redis, name: str, job: Job) -> Iterator[None]:
    asked_at = clock()
    redis_lock = store.lock(name, timeout=job.lease_s, sleep=job.lease_s / 12)
    redis_lock.acquire(blocking_timeout=job.lease_s)  # False when it was not granted; nobody looks
    owner = str(redis_lock.local.token.decode() if redis_lock.local.token else "nobody")
    holding = Held(store, name, owner, None, Watchdog(store, name, owner, job.lock_ttl_ms, asked_at))
    try:
        yield
    finally:
        holding.watchdog.stop()
        release_if_owner(holding)


def run(job: Job) -> None:
    store = connect(job)
    with lock(store, f"lock:{job.customer}", job):
        bill(job, store)
