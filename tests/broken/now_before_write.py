"""ShedLock#132, #1596: a pause between taking "now" and writing the lease: it has run out when it is written."""

from __future__ import annotations

import time
from typing import Any

import redis

from harness.subject import Job
from tests.broken.shop import bill, locked


def acquire(store: redis.Redis, lock: str, owner: str, lease_ms: int) -> Any:
    locked_until = int(time.time() * 1000) + lease_ms
    return store.set(lock, owner, nx=True, pxat=locked_until)


def run(job: Job) -> None:
    with locked(job, acquire=acquire) as lock:
        bill(job, lock.store)
