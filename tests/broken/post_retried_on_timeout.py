"""mollie-api-python#325: the HTTP client sends the POST again after a read timeout, and there is no idempotency key."""

from __future__ import annotations

from typing import Any

import urllib3

from harness.subject import Job
from tests.broken.shop import bill, locked


def post_charge(job: Job, http: urllib3.PoolManager, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """One charge by an HTTP client of the subject's own. Raises urllib3's HTTPError."""
    body = {"customer": job.customer, "invoice": job.invoice, "amount": job.amount, "currency": job.currency}
    answer = http.request("POST", job.processor_url + "/v1/charges", json=body, headers=headers)
    charge: dict[str, Any] = answer.json()
    return charge


def run(job: Job) -> None:
    http = urllib3.PoolManager(timeout=job.lease_s, retries=urllib3.Retry(2, allowed_methods=None))
    with locked(job) as lock:
        bill(job, lock.store, check=lock.watchdog.check, charge=lambda: post_charge(job, http))
