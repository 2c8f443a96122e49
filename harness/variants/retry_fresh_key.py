"""retry-fresh-key: retry-no-key, with an idempotency key that is drawn anew for each attempt. Of one scenario only.

Guarantees: none. A key says "this is the same charge"; a fresh one says that it is another. Client libraries that draw
a key for each call (stripe-python) protect the retries inside that call, not the caller's own.
"""

from __future__ import annotations

import uuid

from harness.subject import Job
from harness.variants.retry_no_key import bill


def run(job: Job) -> None:
    """Charges the invoice under the lock, each attempt with a key of its own."""
    bill(job, lambda: str(uuid.uuid4()))
