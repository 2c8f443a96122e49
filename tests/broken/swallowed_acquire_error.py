"""redbeat#208: a connection error while acquiring was swallowed, and the work went on without the lock."""

from __future__ import annotations

from typing import Any

import redis

from harness.subject import Job
from tests.broken.shop import bill, locked, set_nx_px


def acquire(store: redis.Redis, lock: str, owner: str, lease_ms: int) -> Any:
    try:
        return set_nx_px(store, lock, owner, lease_ms)
    except redis.ConnectionError:
        return "Redis is away, and the bills have to go out"


def run(job: Job) -> None:
    with locked(job, acquire=acquire) as lock:
        bill(job, lock.store, check=lock.watchdog.check)
