"""akash-network/console#3449: a success that was only slow is retried under a fresh idempotency key."""

from __future__ import annotations

import uuid

import tenacity
import urllib3

from harness.subject import Job
from tests.broken.post_retried_on_timeout import post_charge
from tests.broken.shop import bill, locked


def run(job: Job) -> None:
    http = urllib3.PoolManager(timeout=job.lease_s, retries=False)

    @tenacity.retry(
        retry=tenacity.retry_if_exception_type(urllib3.exceptions.HTTPError), stop=tenacity.stop_after_attempt(3)
    )
    def charge() -> dict[str, object]:
        return post_charge(job, http, {"Idempotency-Key": str(uuid.uuid4())})

    with locked(job) as lock:
        bill(job, lock.store, check=lock.watchdog.check, charge=charge)
