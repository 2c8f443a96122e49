"""retry-invoice-key: retry-no-key, with an idempotency key made from the invoice. Of one scenario only.

Guarantees: one charge for each invoice, however often it is tried and by whom, for as long as the processor remembers
the key: a second attempt is given the answer to the first.
"""

from __future__ import annotations

from harness.subject import Job
from harness.variants.retry_no_key import bill


def run(job: Job) -> None:
    """Charges the invoice under the lock, every attempt with the same key."""
    bill(job, lambda: f"invoice-{job.invoice}")
