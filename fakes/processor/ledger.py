"""The ledger on disk: charges, marks and voided intents, and every SQL statement there is.

SQLite in WAL mode with synchronous=NORMAL: what was committed has been handed to the operating system, so it survives
kill -9 of this process at any instant (https://www.sqlite.org/pragma.html#pragma_synchronous); only a crash of the
machine could take the last commits. One connection, in one thread: each statement sees what the one before did.
"""

from __future__ import annotations

import fcntl
import secrets
import sqlite3
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from fakes.processor.errors import intent_charged, intent_voided, stale_token

KEY_KEPT_MS = 24 * 60 * 60 * 1000
"""How long an idempotency key is kept after its charge committed, unless a rule says otherwise (Stripe: 24 hours)."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS charges (
    seq INTEGER PRIMARY KEY,        -- the order of commits
    id TEXT NOT NULL, customer TEXT NOT NULL, invoice TEXT NOT NULL, amount INTEGER NOT NULL, currency TEXT NOT NULL,
    intent TEXT, fencing_token INTEGER, created_at TEXT NOT NULL,
    idempotency_key TEXT, who TEXT NOT NULL,
    committed_ns INTEGER NOT NULL,  -- CLOCK_MONOTONIC, as every event of the harness
    key_expires_ns INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS charges_of_customer ON charges (customer, invoice);
CREATE UNIQUE INDEX IF NOT EXISTS charge_of_intent ON charges (intent) WHERE intent IS NOT NULL;
CREATE INDEX IF NOT EXISTS charges_of_key ON charges (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE TABLE IF NOT EXISTS marks (customer TEXT PRIMARY KEY, mark INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS voided (intent TEXT PRIMARY KEY) WITHOUT ROWID;
"""
COLUMNS = (
    "id, customer, invoice, amount, currency, intent, fencing_token, created_at, idempotency_key, who, committed_ns"
)


@dataclass(frozen=True, slots=True)
class Order:
    """A well-formed charge request. amount in minor units; token and key are its two optional headers."""

    customer: str
    invoice: str
    amount: int
    currency: str
    intent: str | None = None
    token: int | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    """One row of the ledger."""

    id: str
    customer: str
    invoice: str
    amount: int
    currency: str
    intent: str | None
    fencing_token: int | None
    created_at: str
    idempotency_key: str | None
    who: str
    committed_ns: int

    def public(self) -> dict[str, Any]:
        """What callers of the payment API see."""
        return {
            "id": self.id,
            "customer": self.customer,
            "invoice": self.invoice,
            "amount": self.amount,
            "currency": self.currency,
            "intent": self.intent,
            "fencing_token": self.fencing_token,
            "created_at": self.created_at,
        }

    def record(self) -> dict[str, Any]:
        """All of it, for the control API."""
        return {
            **self.public(),
            "idempotency_key": self.idempotency_key,
            "who": self.who,
            "committed_ns": self.committed_ns,
        }

    def differs_from(self, order: Order) -> str | None:
        """The first parameter in which an order under the same idempotency key is not this charge."""
        for name in ("customer", "invoice", "amount", "currency", "intent"):
            if getattr(self, name) != getattr(order, name):
                return name
        return None


class Ledger:
    """Opens (or creates) the ledger at path. Raises OSError or sqlite3.Error when that cannot be done.

    One processor at a time: two would not know of each other's requests in flight. The kernel drops the lock with
    the process, however it dies. Every method may raise sqlite3.Error.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._lock = self._path.with_name(self._path.name + ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise OSError(f"another processor has the ledger {path}") from None
        # isolation_level=None: transactions begin and end where this file says so.
        self._db = sqlite3.connect(self._path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()
        self._lock.close()

    def raise_mark(self, customer: str, token: int) -> int:
        """Raises the customer's mark to token unless it is higher already; returns the mark."""
        mark = self._mark(customer)
        if mark is not None and mark >= token:
            return mark
        self._db.execute(
            "INSERT INTO marks (customer, mark) VALUES (?, ?)"
            " ON CONFLICT (customer) DO UPDATE SET mark = excluded.mark",
            (customer, token),
        )
        return token

    def check(self, order: Order) -> None:
        """Raises the Refusal that committing this order now would meet: stale token, voided or charged intent."""
        if order.token is not None:
            mark = self._mark(order.customer)
            if mark is not None and order.token < mark:
                raise stale_token(order.token, mark)
        if order.intent is not None:
            if self._db.execute("SELECT 1 FROM voided WHERE intent = ?", (order.intent,)).fetchone():
                raise intent_voided()
            if charged := self.charges(intent=order.intent):
                raise intent_charged(charged[0].public())

    def commit(self, order: Order, who: str, key_kept_ms: int = KEY_KEPT_MS) -> Charge:
        """Charges, or raises as check does: compared and inserted in one transaction, so nothing comes between."""
        with self._db:  # commits, or rolls back what raised
            self._db.execute("BEGIN IMMEDIATE")
            self.check(order)
            now_ns = time.monotonic_ns()
            charge = Charge(
                "ch_" + secrets.token_hex(12),
                order.customer,
                order.invoice,
                order.amount,
                order.currency,
                order.intent,
                order.token,
                datetime.now(UTC).isoformat(timespec="milliseconds"),
                order.key,
                who,
                now_ns,
            )
            self._db.execute(
                f"INSERT INTO charges ({COLUMNS}, key_expires_ns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    charge.id,
                    charge.customer,
                    charge.invoice,
                    charge.amount,
                    charge.currency,
                    charge.intent,
                    charge.fencing_token,
                    charge.created_at,
                    charge.idempotency_key,
                    charge.who,
                    charge.committed_ns,
                    now_ns + key_kept_ms * 1_000_000,
                ),
            )
        return charge

    def stored(self, key: str) -> Charge | None:
        """The charge committed under an idempotency key, unless the key has expired since."""
        row = self._db.execute(
            f"SELECT {COLUMNS} FROM charges WHERE idempotency_key = ? AND key_expires_ns > ? ORDER BY seq DESC LIMIT 1",
            (key, time.monotonic_ns()),
        ).fetchone()
        return Charge(*row) if row else None

    def charges(
        self, *, customer: str | None = None, invoice: str | None = None, intent: str | None = None
    ) -> list[Charge]:
        """The charges that match all that is given, in the order of their commits."""
        given = {"customer": customer, "invoice": invoice, "intent": intent}
        wanted = {column: value for column, value in given.items() if value is not None}
        where = " AND ".join(f"{column} = ?" for column in wanted)
        rows = self._db.execute(f"SELECT {COLUMNS} FROM charges WHERE {where} ORDER BY seq", tuple(wanted.values()))
        return [Charge(*row) for row in rows]

    def void(self, intent: str) -> None:
        """Leaves a tombstone, for an intent never seen too. Raises Refusal intent_charged if it was charged."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            if charged := self.charges(intent=intent):
                raise intent_charged(charged[0].public())
            self._db.execute("INSERT OR IGNORE INTO voided (intent) VALUES (?)", (intent,))

    def account(self, customer: str) -> tuple[int | None, list[Charge]]:
        """The mark and the charges of a customer as anyone else would find them on disk: through a connection of its
        own that was not there before, so that nothing remembered in this process can stand in for the file."""
        reader = sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True, isolation_level=None)
        try:
            mark = reader.execute("SELECT mark FROM marks WHERE customer = ?", (customer,)).fetchone()
            rows = reader.execute(f"SELECT {COLUMNS} FROM charges WHERE customer = ? ORDER BY seq", (customer,))
            return (mark[0] if mark else None), [Charge(*row) for row in rows]
        finally:
            reader.close()

    def _mark(self, customer: str) -> int | None:
        row = self._db.execute("SELECT mark FROM marks WHERE customer = ?", (customer,)).fetchone()
        return row[0] if row else None
