"""PostgreSQL: the invoice's row is claimed with FOR UPDATE SKIP LOCKED, in a transaction open over the charge.

Whoever finds it locked leaves. The charge has a key, because a transaction that is rolled back takes no charge back.
"""

from __future__ import annotations

from typing import Any

import psycopg

from harness.subject import EXIT_GAVE_UP, Job, Processor


def connect(job: Job) -> psycopg.Connection[tuple[Any, ...]]:
    assert job.database_url is not None
    return psycopg.connect(job.database_url, autocommit=True, connect_timeout=10)


def setup(job: Job) -> None:
    """The migration and the invoice's row: --harness-setup tests.sound.postgres_skip_locked:setup."""
    with connect(job) as database:
        database.execute("CREATE TABLE due (invoice text PRIMARY KEY, charge text)")
        database.execute("INSERT INTO due (invoice) VALUES (%s)", [job.invoice])


def run(job: Job) -> None:
    with connect(job) as database, database.transaction():
        row = database.execute(
            "SELECT charge FROM due WHERE invoice = %s FOR UPDATE SKIP LOCKED", [job.invoice]
        ).fetchone()
        if row is None:
            raise SystemExit(EXIT_GAVE_UP)
        if row[0] is None:
            charge = Processor(job).charge(idempotency_key=f"due-{job.invoice}")["id"]
            database.execute("UPDATE due SET charge = %s WHERE invoice = %s", [charge, job.invoice])
