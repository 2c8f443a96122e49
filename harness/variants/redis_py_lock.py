"""redis-py-lock: naive-ttl's job on redis-py's own Lock and redis-py's default retries. Of one scenario only.

Guarantees: what naive-ttl does, at a price. redis-py 8 sends a command again, up to 10 times, when its reply is lost.
A SET NX whose reply was lost has taken the lock; sent again, it finds the lock taken, and acquire() says no. The worker
waits for its own lease to run out, and so does everybody else.
"""

from __future__ import annotations

import redis

from harness.subject import ACQUIRE_TIMEOUT_LEASES, Job, Processor, Refused, give_up, say

POLLS_PER_LEASE = 12


def run(job: Job) -> None:
    """Charges the invoice under redis-py's lock."""
    store, paid = redis.Redis.from_url(job.redis_url), f"paid:{job.invoice}"
    lock = store.lock(f"lock:{job.customer}", timeout=job.lease_s, sleep=job.lease_s / POLLS_PER_LEASE)
    if not lock.acquire(blocking_timeout=ACQUIRE_TIMEOUT_LEASES * job.lease_s):
        give_up(f"no lock within {ACQUIRE_TIMEOUT_LEASES} leases")
    say("acquired")
    try:
        if store.get(paid):
            say("already-paid")
            return
        charge = Processor(job).charge()
        store.set(paid, charge["id"])
    except Refused as refused:
        say("refused", code=refused.code)
    finally:
        lock.release()
