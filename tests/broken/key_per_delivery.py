"""woocommerce-gateway-stripe#489, #3725: a crash after the charge, before the order is saved; the next delivery charges
under another key.
"""

from __future__ import annotations

import uuid

from harness.subject import Job, Processor
from tests.broken.shop import bill, locked


def run(job: Job) -> None:
    key = f"{job.invoice}-{uuid.uuid4()}"  # made anew each time the job is delivered, and saved nowhere
    with locked(job) as lock:
        bill(job, lock.store, check=lock.watchdog.check, charge=lambda: Processor(job).charge(idempotency_key=key))
