"""A try-lock: whoever finds it taken leaves at once, and the queue delivers the job again. The charge has a key."""

from __future__ import annotations

import os

import redis

from harness.subject import EXIT_GAVE_UP, Job, Processor
from harness.variants.naive_ttl import RELEASE


def run(job: Job) -> None:
    with redis.Redis.from_url(job.redis_url) as store:
        lock, owner = f"job:{job.invoice}:running", f"{job.worker}-{os.getpid()}-{os.urandom(8).hex()}"
        if not store.set(lock, owner, nx=True, px=job.lock_ttl_ms):
            raise SystemExit(EXIT_GAVE_UP)
        try:
            if store.sismember("paid", job.invoice):
                return
            Processor(job).charge(idempotency_key=job.invoice)
            store.sadd("paid", job.invoice)
        finally:
            store.eval(RELEASE, 1, lock, owner)
