"""celery-singleton#40, celery-once#147: a lock without a time to live is never freed when its worker is killed."""

from __future__ import annotations

import secrets

from harness.subject import Job
from tests.broken.shop import RELEASE, bill, connect, poll


def run(job: Job) -> None:
    store, lock, owner = connect(job), f"lock:{job.customer}", secrets.token_hex(16)
    poll(job, lambda: store.set(lock, owner, nx=True))
    try:
        bill(job, store)
    finally:
        store.eval(RELEASE, 1, lock, owner)
