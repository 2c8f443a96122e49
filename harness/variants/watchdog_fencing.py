"""watchdog-fencing: a lease that is renewed, and a fencing token that goes with the charge.

Guarantees: what the watchdog does, and a worker that lost its lease before its charge reached the processor is refused
there. Not covered: a worker frozen or killed between its charge and the record of it, because its successor asks the
wrong place whether the invoice is paid (see fenced-read).
"""

from __future__ import annotations

import secrets
from typing import Any

from harness.subject import Job, Processor, Refused, poll, say
from harness.variants.fencing import ACQUIRE
from harness.variants.naive_ttl import RELEASE, connect
from harness.variants.watchdog import Watchdog, clock


def run(job: Job) -> None:
    """Charges the invoice under a lock that is renewed, with the fencing token."""
    bill(job, ask_processor=False)


def bill(job: Job, *, ask_processor: bool) -> None:
    """The whole job. ask_processor: ask the processor, with the token, whether the invoice is paid, not Redis."""
    store, processor = connect(job), Processor(job)
    lock, owner, paid = f"lock:{job.customer}", secrets.token_hex(16), f"paid:{job.invoice}"

    def acquire() -> tuple[int, float] | None:
        asked_at = clock()
        drawn: Any = store.eval(ACQUIRE, 2, lock, f"fence:{job.customer}", owner, job.lock_ttl_ms)
        return (int(drawn), asked_at) if drawn else None

    token, asked_at = poll(job, acquire) or (0, 0.0)
    watchdog = Watchdog(store, lock, owner, job.lock_ttl_ms, asked_at)
    say("acquired", owner=owner, token=token)
    try:
        if processor.charges(token=token) if ask_processor else store.get(paid):
            say("already-paid")
            return
        watchdog.check()
        charge = processor.charge(token=token)
        store.set(paid, charge["id"])
    except Refused as refused:
        say("refused", code=refused.code)
    finally:
        watchdog.stop()
        store.eval(RELEASE, 1, lock, owner)
