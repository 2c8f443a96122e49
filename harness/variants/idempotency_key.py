"""idempotency-key: the naive lock, and the charge carries a key made from the invoice.

Guarantees: one charge for each invoice for as long as the processor remembers the key (Stripe: at least 24 hours),
whatever becomes of the lock. The processor, not the lock, is what stops the second charge.
"""

from __future__ import annotations

from harness.subject import Job
from harness.variants.naive_ttl import bill


def run(job: Job) -> None:
    """Charges the invoice under the lock, with a key that is the same for every attempt at this invoice."""
    bill(job, lease_ms=job.lock_ttl_ms, idempotency_key=f"invoice-{job.invoice}")
