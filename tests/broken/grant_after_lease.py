"""etcd#11456: the lock call returned after its lease had already died while it was queued, and said nothing."""

from __future__ import annotations

from harness.subject import Job
from tests.broken.shop import bill, locked


def run(job: Job) -> None:
    with locked(job) as lock:  # returns however long ago the grant was
        bill(job, lock.store)
