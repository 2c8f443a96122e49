"""retry-no-key: naive-ttl's job with a charge that is tried again when its outcome is unknown. Of one scenario only.

Guarantees: none that naive-ttl has not. A charge whose answer was lost (a reset, a timeout, an error 500) has perhaps
been made; sending it again without a word that it is the same makes another. The lock is held all the while: it keeps
others away, not the worker itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

import tenacity
import urllib3

from harness.subject import Job, Processor, Refused, poll, say
from harness.variants.naive_ttl import RELEASE, connect

TIMEOUT_LEASES = 0.8
"""Shorter than the lease, so that the lock still is held when the charge is tried again."""
ATTEMPTS = 3


def run(job: Job) -> None:
    """Charges the invoice under the lock, as often as it takes to get an answer."""
    bill(job, lambda: None)


def bill(job: Job, key: Callable[[], str | None]) -> None:
    """naive-ttl's job; key gives the idempotency key of each attempt at the charge."""
    store, processor = connect(job), Processor(job, timeout_leases=TIMEOUT_LEASES)
    lock, owner, paid = f"lock:{job.customer}", secrets.token_hex(16), f"paid:{job.invoice}"
    trying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(urllib3.exceptions.HTTPError),
        wait=tenacity.wait_fixed(job.lease_s / 50),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        after=lambda state: say("charge-failed", attempt=state.attempt_number),
        reraise=True,
    )
    poll(job, lambda: store.set(lock, owner, nx=True, px=job.lock_ttl_ms))
    say("acquired", owner=owner)
    try:
        if store.get(paid):
            say("already-paid")
            return
        charge = trying(lambda: processor.charge(idempotency_key=key()))
        store.set(paid, charge["id"])
    except Refused as refused:
        say("refused", code=refused.code)
    finally:
        store.eval(RELEASE, 1, lock, owner)
