"""redis-py's own Lock for order, and an idempotency key made from the invoice for safety."""

from __future__ import annotations

import redis
from redis.exceptions import LockNotOwnedError

from harness.subject import ACQUIRE_TIMEOUT_LEASES, Job, Processor, give_up


def run(job: Job) -> None:
    store = redis.Redis.from_url(job.redis_url, decode_responses=True)
    lock = store.lock(
        f"billing:{job.customer}",
        timeout=job.lease_s,
        sleep=job.lease_s / 12,
        blocking_timeout=ACQUIRE_TIMEOUT_LEASES * job.lease_s,
    )
    if not lock.acquire():
        give_up("no lock in time")
    try:
        if not store.hexists("paid", job.invoice):
            charge = Processor(job).charge(idempotency_key=f"charge-{job.invoice}")
            store.hset("paid", job.invoice, charge["id"])
    finally:
        try:
            lock.release()
        except LockNotOwnedError:
            pass  # it ran out while the charge was slow; the key made that safe
