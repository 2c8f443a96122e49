"""pg-advisory-xact: a transaction-level advisory lock; one transaction is open over the charge and records it too.

Guarantees: lock and record end together, so whoever has the lock next sees the record, if there is one. A slow or
frozen worker keeps the lock for as long as its transaction stands. It holds behind a pooler in transaction mode.

A transaction cannot take a charge back. When it ends without a commit (the worker dies, the connection is lost, the
server ends the session, idle_in_transaction_session_timeout), lock and record are gone and the charge is not: the
next worker charges again. While it is open it occupies a server connection and keeps vacuum from cleaning up. Workers
on another PostgreSQL do not see it at all.
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
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
PAID = "SELECT charge FROM lockproof_invoices WHERE customer = %s AND invoice = %s"
RECORD = "INSERT INTO lockproof_invoices (customer, invoice, charge) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"


def run(job: Job) -> None:
    """Charges the invoice in a transaction that holds the lock."""
    with connect(job) as transaction:
        poll(job, lambda: locked(job, transaction))
        say("acquired")
        bill(job, transaction)
    say("released")  # leaving the block has committed; leaving it by an exception rolls back


def locked(job: Job, transaction: psycopg.Connection[tuple[Any, ...]]) -> bool:
    """Begins a transaction with the lock; without it, ends it again, so that nothing is held while waiting."""
    if transaction.execute(TRY_LOCK, [job.customer]).fetchone() == (True,):
        return True
    transaction.rollback()
    return False


def bill(job: Job, transaction: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Paid already? Else charge and record it. Read committed: the question sees all that is committed by now."""
    invoice = [job.customer, job.invoice]
    if transaction.execute(PAID, invoice).fetchone():
        say("already-paid")
        return
    try:
        charge = Processor(job).charge()
    except Refused as refused:
        say("refused", code=refused.code)
        return
    transaction.execute(RECORD, [*invoice, charge["id"]])


def connect(job: Job) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection whose first statement begins a transaction.

    Without prepared statements: behind a pooler the next transaction may be given another session.
    """
    if job.database_url is None:
        raise ValueError("DATABASE_URL is not set: pg-advisory-xact needs a PostgreSQL")
    return psycopg.connect(job.database_url, connect_timeout=CONNECT_TIMEOUT_S, prepare_threshold=None)
