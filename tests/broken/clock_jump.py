"""valkey#2651: expiry follows the server's wall clock; it jumps, every lock expires, and the charge goes on."""

from __future__ import annotations

from harness.subject import Job
from tests.broken.shop import bill, locked


def run(job: Job) -> None:
    with locked(job) as lock:
        bill(job, lock.store, check=lock.watchdog.check)
