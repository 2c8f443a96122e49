"""A connection pool and three threads: one renews, one bills, one watches both; the charge has a key.

The renewing thread borrows whatever connection the pool has, so a renewal may travel on the job's own.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import redis

from harness.subject import ACQUIRE_TIMEOUT_LEASES, Job, Processor, give_up
from harness.variants.naive_ttl import RELEASE
from harness.variants.watchdog import EXTEND


def run(job: Job) -> None:
    pool = redis.BlockingConnectionPool.from_url(job.redis_url, max_connections=3, decode_responses=True)
    store = redis.Redis(connection_pool=pool)
    lock, owner = f"customer:{job.customer}:lock", str(uuid4())
    gives_up_at = time.monotonic() + ACQUIRE_TIMEOUT_LEASES * job.lease_s
    while not store.set(lock, owner, nx=True, px=job.lock_ttl_ms):
        if time.monotonic() > gives_up_at:
            give_up("no lock in time")
        time.sleep(job.lease_s / 12)
    done = threading.Event()

    def renew() -> None:
        while not done.wait(job.lease_s / 3):
            try:
                store.eval(EXTEND, 1, lock, owner, job.lock_ttl_ms)
            except redis.RedisError:
                continue  # the key makes it safe to go on

    def bill() -> None:
        invoice = f"invoice:{job.invoice}"
        if store.get(invoice) is None:
            store.set(invoice, Processor(job).charge(idempotency_key=invoice)["id"])

    with ThreadPoolExecutor(2) as threads:
        renewing, billing = threads.submit(renew), threads.submit(bill)
        try:
            billing.result()
        finally:
            done.set()
            renewing.result()
            store.eval(RELEASE, 1, lock, owner)
