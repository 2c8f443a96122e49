"""redbeat#127: renewal by a bare PEXPIRE, without a look at the owner: A extends B's lock and takes it for its own."""

from __future__ import annotations

from harness.subject import Job
from tests.broken.shop import LeaseLost, bill, locked


def run(job: Job) -> None:
    with locked(job) as lock:

        def check() -> None:
            if not lock.store.pexpire(lock.lock, job.lock_ttl_ms):
                raise LeaseLost

        bill(job, lock.store, check=check)
