"""redisson#2665: 100 % CPU, or a frozen VM, starves the watchdog; the job wakes up and never asks if it may go on."""

from __future__ import annotations

from harness.subject import Job
from tests.broken.shop import bill, locked


def run(job: Job) -> None:
    with locked(job) as lock:
        bill(job, lock.store)  # lock.watchdog.check() is what is missing
