"""redis-py#3532: `with lock` raises LockNotOwnedError after the work is done; the caller retries, and charges again.

Nobody else charges here: who began is written down, so a second worker leaves the invoice alone.
"""

from __future__ import annotations

import tenacity
from redis.exceptions import LockError

from harness.subject import ACQUIRE_TIMEOUT_LEASES, Job, Processor
from tests.broken.shop import connect


@tenacity.retry(retry=tenacity.retry_if_exception_type(LockError), stop=tenacity.stop_after_attempt(2), reraise=True)
def run(job: Job) -> None:
    store, paid, begun = connect(job), f"paid:{job.invoice}", f"begun:{job.invoice}"
    lock = store.lock(
        f"lock:{job.customer}",
        timeout=job.lease_s,
        sleep=job.lease_s / 12,
        blocking_timeout=ACQUIRE_TIMEOUT_LEASES * job.lease_s,
    )
    with lock:
        if store.get(paid) or (not store.set(begun, job.worker, nx=True) and store.get(begun) != job.worker):
            return
        charge = Processor(job).charge()
    store.set(paid, charge["id"])
