"""sidekiq-unique-jobs#94, celery-once, celery-singleton: an unconditional DEL frees the next owner's lock."""

from __future__ import annotations

from harness.subject import Job
from tests.broken.shop import fenced


def run(job: Job) -> None:
    fenced(job, release=lambda lock: lock.store.delete(lock.lock))
