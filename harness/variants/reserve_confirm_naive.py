"""reserve-confirm-naive: reserve, charge, confirm as it is often written, with an intent in Redis, read then written.

Guarantees: a slow charge does no harm. The intent outlives the lock, and who finds one leaves the invoice alone.

Nobody comes back for an intent. A worker that dies once it has reserved, or whose charge gets no answer, leaves the
invoice reserved for ever: if it was not charged, it never will be. Reading and writing are two steps that only the
lock keeps together: a worker that is held up between them for longer than the lease reserves what another has
reserved since, and both charge. A Redis that loses its data loses the intents too.
"""

from __future__ import annotations

import uuid

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


def run(job: Job) -> None:
    """Reserves under the lock, charges without it, confirms."""
    store = connect(job)
    key, mine = f"intent:{job.customer}:{job.invoice}", str(uuid.uuid4())
    found = reserve(job, store, key, f"reserved {mine}")
    if found is not None:
        say("skipped", why=found)
        return
    try:
        charge = Processor(job).charge(intent=mine)
    except Refused as refused:
        say("refused", code=refused.code)
        store.delete(key)
    else:
        store.set(key, f"confirmed {charge['id']}")


def reserve(job: Job, store: redis.Redis, key: str, value: str) -> str | None:
    """Writes the intent if there is none; else returns the one there is."""
    lock, owner = f"lock:{job.customer}", str(uuid.uuid4())
    poll(job, lambda: store.set(lock, owner, nx=True, px=job.lock_ttl_ms))
    try:
        found = store.get(key)
        if found is not None:
            return str(found)
        store.set(key, value)
        say("reserved", intent=value)
        return None
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
