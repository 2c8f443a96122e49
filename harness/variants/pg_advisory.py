"""pg-advisory: a session-level advisory lock of PostgreSQL, on a connection of its own that is held over the charge.

Guarantees: one worker at a time for as long as its session stands, however slow or frozen it is; there is no lease to
run out. A worker that dies frees the lock at once.

It does not see what happens behind the session's back. When the server ends the session (an administrator, a
failover, idle_session_timeout) the lock is gone and the charge goes on. A worker that dies between the charge and the
record of it leaves a free lock and an invoice that looks unpaid: the next one charges again. Behind a pooler in
transaction mode the lock belongs to a server connection that anybody may be given next. Workers on another
PostgreSQL do not see it at all.
"""

from __future__ import annotations

from typing import Any

import psycopg

from harness.subject import Job, Processor, Refused, poll, say

SCHEMA = """
CREATE TABLE IF NOT EXISTS lockproof_invoices (
    customer text NOT NULL,
    invoice  text NOT NULL,
    charge   text NOT NULL,
    PRIMARY KEY (customer, invoice)
);
"""
CONNECT_TIMEOUT_S = 10

# Two customers whose numbers collide only wait for each other.
TRY_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
UNLOCK = "SELECT pg_advisory_unlock(hashtextextended(%s, 0))"
PAID = "SELECT charge FROM lockproof_invoices WHERE customer = %s AND invoice = %s"
RECORD = "INSERT INTO lockproof_invoices (customer, invoice, charge) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"


def run(job: Job) -> None:
    """Charges the invoice under the lock."""
    with connect(job) as session, connect(job) as database:
        # Polled, because a session that waits in pg_advisory_lock() keeps no deadline without changing its settings.
        poll(job, lambda: session.execute(TRY_LOCK, [job.customer]).fetchone() == (True,))
        say("acquired")
        bill(job, database)
        try:
            released = session.execute(UNLOCK, [job.customer]).fetchone() == (True,)
            say("released", held=released)
        except psycopg.OperationalError as error:
            say("lock-lost", why=str(error))  # the server ended the session, who knows when


def bill(job: Job, database: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Paid already? Else charge, and record it in the same PostgreSQL."""
    invoice = [job.customer, job.invoice]
    if database.execute(PAID, invoice).fetchone():
        say("already-paid")
        return
    try:
        charge = Processor(job).charge()
    except Refused as refused:
        say("refused", code=refused.code)
        return
    database.execute(RECORD, [*invoice, charge["id"]])


def connect(job: Job) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection in autocommit mode, without prepared statements: those are the session's, as the lock is."""
    if job.database_url is None:
        raise ValueError("DATABASE_URL is not set: pg-advisory needs a PostgreSQL")
    return psycopg.connect(job.database_url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, prepare_threshold=None)
