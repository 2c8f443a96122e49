"""reserve-confirm: the lock covers a fast local write, the charge is made with nothing held, then it is confirmed.

Guarantees: never two charges, and none lost for good. What keeps workers apart is the intent, one row per invoice:
whoever inserted it charges, under its id. (The Redis lock spares others the attempt; the primary key decides.) Who
finds one unconfirmed after 3 leases recovers it: confirms it if the processor has charged it, and else voids it there
before a new one takes its place, so that a charge still on its way under the old id is refused, however late.

The price: an invoice whose worker died waits 3 leases, and a charge slower than that is voided and made anew when
another worker waits for it, so the age has to exceed the processor's slowest honest answer. The processor must know
intents: find the charge of one, and refuse what comes under a voided one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from harness.subject import CHARGE_TIMEOUT_LEASES, Job, Processor, Refused, poll, say

SCHEMA = """
CREATE TABLE IF NOT EXISTS lockproof_intents (
    customer    text NOT NULL,
    invoice     text NOT NULL,
    id          text NOT NULL UNIQUE,
    reserved_at timestamptz NOT NULL DEFAULT now(),
    charge      text, -- null while reserved, set once confirmed
    PRIMARY KEY (customer, invoice)
);
"""
RECOVERY_AGE_LEASES = 3
CONNECT_TIMEOUT_S = 10
PAID, PENDING = "paid", ""

# Its age is the database's to say: the workers' clocks differ.
FIND = """
SELECT id, charge, now() - reserved_at > %s * interval '1 millisecond' AS abandoned
  FROM lockproof_intents WHERE customer = %s AND invoice = %s
"""
RESERVE = "INSERT INTO lockproof_intents (customer, invoice, id) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
REPLACE = "UPDATE lockproof_intents SET id = %s, reserved_at = now() WHERE id = %s AND charge IS NULL"
CONFIRM = "UPDATE lockproof_intents SET charge = %s WHERE id = %s AND charge IS NULL"
ROLL_BACK = "DELETE FROM lockproof_intents WHERE id = %s AND charge IS NULL"
RELEASE = """
if redis.call("GET", KEYS[1]) == ARGV[1] then
    return redis.call("DEL", KEYS[1])
end
return 0
"""


def run(job: Job) -> None:
    """Reserves, charges and confirms the invoice. No connection to the database is held over the charge."""
    processor = Processor(job)
    with connect(job) as database:
        intent = poll(job, lambda: reserve_or_recover(job, database, processor))
    if intent == PAID:
        say("already-paid")
        return
    say("reserved", intent=intent)
    # Without an answer the worker ends here: whether it was charged is for the recovery to find out.
    try:
        charge = processor.charge(intent=intent)["id"]
    except Refused as refused:
        say("refused", code=refused.code)
        # Something on the way may have sent it twice: the other one was charged, or is never to be.
        charge = charge_or_void(intent, processor)
    with connect(job) as database:
        if charge is not None:
            database.execute(CONFIRM, [charge, intent])
        else:
            database.execute(ROLL_BACK, [intent])


def reserve_or_recover(job: Job, database: psycopg.Connection[tuple[Any, ...]], processor: Processor) -> str:
    """The id of an intent that is ours to charge, or PAID; PENDING while it is somebody else's: ask again."""
    mine = str(uuid.uuid4())
    found = database.execute(FIND, [RECOVERY_AGE_LEASES * job.lock_ttl_ms, job.customer, job.invoice]).fetchone()
    if found is None:
        with lock(job):
            return mine if database.execute(RESERVE, [job.customer, job.invoice, mine]).rowcount else PENDING
    theirs, charge, abandoned = found
    if charge is not None:
        return PAID
    if not abandoned:
        return PENDING
    charge = charge_or_void(theirs, processor)
    say("recovered", intent=theirs, charge=charge)
    if charge is not None:
        database.execute(CONFIRM, [charge, theirs])
        return PAID
    # Of several who have come this far, one replaces it.
    return mine if database.execute(REPLACE, [mine, theirs]).rowcount else PENDING


def charge_or_void(intent: str, processor: Processor) -> str | None:
    """The charge made under this intent; None when there is none and, voided now, never will be."""
    made = processor.charges(intent=intent)
    if not made:
        try:
            processor.void(intent)
        except Refused as refused:
            if refused.code != "intent_charged":
                raise
            made = processor.charges(intent=intent)  # it was charged between the question and the void
    return made[0]["id"] if made else None


@contextmanager
def lock(job: Job) -> Iterator[None]:
    """naive-ttl's lock, around the write alone."""
    # Never sends a command twice: redis-py's default retries would take our own lock for somebody else's.
    timeout_s = CHARGE_TIMEOUT_LEASES * job.lease_s
    store = redis.Redis.from_url(job.redis_url, retry=Retry(NoBackoff(), 0), socket_timeout=timeout_s)
    key, owner = f"lock:{job.customer}", str(uuid.uuid4())
    poll(job, lambda: store.set(key, owner, nx=True, px=job.lock_ttl_ms))
    try:
        yield
    finally:
        store.eval(RELEASE, 1, key, owner)


def connect(job: Job) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection in autocommit mode: every statement is a transaction, each changes at most one row."""
    if job.database_url is None:
        raise ValueError("DATABASE_URL is not set: reserve-confirm needs a PostgreSQL")
    return psycopg.connect(job.database_url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, prepare_threshold=None)
