"""redis-objects#234: the release guard compares a lease in milliseconds with seconds, and so is open for 17 minutes."""

from __future__ import annotations

from harness.subject import Job
from tests.broken.shop import Holding, clock, fenced


def run(job: Job) -> None:
    began = clock()

    def release(lock: Holding) -> None:
        if clock() < began + job.lock_ttl_ms:  # seconds < seconds + milliseconds
            lock.store.delete(lock.lock)

    fenced(job, release)
