"""PostgreSQL and no lock: one row an invoice under a unique constraint, a state in it, and a key made from the row.

Whoever inserts the row first gives it the key; everybody charges under that key and marks the row paid.
"""

from __future__ import annotations

import uuid
from typing import Any

import psycopg

from harness.subject import Job, Processor

SCHEMA = """
CREATE TABLE IF NOT EXISTS bill (
    invoice text PRIMARY KEY,
    key     uuid NOT NULL,
    charge  text
)
"""
CLAIM = """
INSERT INTO bill (invoice, key) VALUES (%s, %s)
ON CONFLICT (invoice) DO UPDATE SET invoice = excluded.invoice
RETURNING key, charge
"""
PAID = "UPDATE bill SET charge = %s WHERE invoice = %s"


def setup(job: Job) -> None:
    """The migration: --harness-setup tests.sound.postgres_unique:setup."""
    with connect(job) as database:
        database.execute(SCHEMA)


def connect(job: Job) -> psycopg.Connection[tuple[Any, ...]]:
    assert job.database_url is not None
    return psycopg.connect(job.database_url, autocommit=True, connect_timeout=10)


def run(job: Job) -> None:
    with connect(job) as database:
        row = database.execute(CLAIM, [job.invoice, uuid.uuid4()]).fetchone()
        assert row is not None
        key, charge = row
        if charge is None:
            charge = Processor(job).charge(idempotency_key=str(key))["id"]
            database.execute(PAID, [charge, job.invoice])
