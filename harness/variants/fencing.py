"""fencing: the naive lock hands out a number that grows with each holder, and the charge carries it.

Guarantees: the processor refuses a charge whose number is lower than one it has seen for this customer. That orders
charges, it does not count them: a first charge that committed before the second holder's number arrived stands, and so
does the second.
"""

from __future__ import annotations

import secrets

from harness.subject import Job, Processor, Refused, poll, say
from harness.variants.naive_ttl import RELEASE, connect

ACQUIRE = """
if redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then
    return redis.call("INCR", KEYS[2])
end
return 0
"""
"""KEYS: lock, counter. ARGV: owner, lease in ms. Returns the fencing token (1, 2, ...), or 0 when the lock is taken.

One atomic step: a token drawn after the lock was granted could be drawn after the lease had run out.
"""


def run(job: Job) -> None:
    """Charges the invoice under the lock, with the fencing token."""
    store = connect(job)
    lock, owner, paid = f"lock:{job.customer}", secrets.token_hex(16), f"paid:{job.invoice}"
    token = int(poll(job, lambda: store.eval(ACQUIRE, 2, lock, f"fence:{job.customer}", owner, job.lock_ttl_ms)))
    say("acquired", owner=owner, token=token)
    try:
        if store.get(paid):
            say("already-paid")
            return
        charge = Processor(job).charge(token=token)
        store.set(paid, charge["id"])
    except Refused as refused:
        say("refused", code=refused.code)
    finally:
        store.eval(RELEASE, 1, lock, owner)
