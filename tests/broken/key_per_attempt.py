"""square-mcp-server#31, pympp#155: the idempotency key is minted inside the call that is retried."""

from __future__ import annotations

import uuid

import tenacity
import urllib3

from harness.subject import Job, Processor
from tests.broken.shop import bill, locked


def run(job: Job) -> None:
    @tenacity.retry(
        retry=tenacity.retry_if_exception_type(urllib3.exceptions.HTTPError), stop=tenacity.stop_after_attempt(3)
    )
    def charge() -> dict[str, object]:
        return Processor(job).charge(idempotency_key=str(uuid.uuid4()))

    with locked(job) as lock:
        bill(job, lock.store, check=lock.watchdog.check, charge=charge)
