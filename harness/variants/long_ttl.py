"""long-ttl: the naive lock with a lease four times as long, the first thing that teams try.

Guarantees: what naive-ttl does, for four times as long. A slower night than planned for brings the double charge back,
and a worker that crashes keeps its customer locked four times as long.
"""

from __future__ import annotations

from harness.subject import Job
from harness.variants.naive_ttl import bill

LEASE_FACTOR = 4


def run(job: Job) -> None:
    """Charges the invoice under a lock with a longer lease."""
    bill(job, lease_ms=LEASE_FACTOR * job.lock_ttl_ms)
