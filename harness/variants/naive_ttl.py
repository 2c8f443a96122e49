"""naive-ttl: a Redis lock with a time to live, as most tutorials have it.

Guarantees: one worker at a time, for as long as everything is faster than the lease. A worker that is slower (a slow
processor, a pause, a lost packet) goes on without its lock and does not know it.
"""

from __future__ import annotations

import secrets

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from harness.subject import CHARGE_TIMEOUT_LEASES, Job, Processor, Refused, poll, say

RELEASE = """
if redis.call("GET", KEYS[1]) == ARGV[1] then
    return redis.call("DEL", KEYS[1])
end
return 0
"""
"""KEYS: lock. ARGV: owner. Returns 1 when the lock was ours and is let go; another owner's lock is left alone."""


def run(job: Job) -> None:
    """Charges the invoice under the lock."""
    bill(job, lease_ms=job.lock_ttl_ms)


def bill(job: Job, *, lease_ms: int, idempotency_key: str | None = None) -> None:
    """The whole job: lock, paid?, charge, record, unlock."""
    store = connect(job)
    lock, owner, paid = f"lock:{job.customer}", secrets.token_hex(16), f"paid:{job.invoice}"
    poll(job, lambda: store.set(lock, owner, nx=True, px=lease_ms))
    say("acquired", owner=owner)
    try:
        if store.get(paid):
            say("already-paid")
            return
        charge = Processor(job).charge(idempotency_key=idempotency_key)
        store.set(paid, charge["id"])
    except Refused as refused:
        say("refused", code=refused.code)
    finally:
        store.eval(RELEASE, 1, lock, owner)


def connect(job: Job) -> redis.Redis:
    """A client that never sends a command twice: redis-py's default retries would, when a reply is lost."""
    return redis.Redis.from_url(
        job.redis_url,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=CHARGE_TIMEOUT_LEASES * job.lease_s,
        decode_responses=True,
    )
