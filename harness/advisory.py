"""Who held an advisory lock, when, by PostgreSQL's own account (pg_locks)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import psycopg

from harness.history import now_ns
from harness.locks import LockAccount

if TYPE_CHECKING:
    from harness.stack.postgres import Postgres
    from harness.stack.postgres_databases import AdvisoryLock

RowsListener = Callable[[Sequence["AdvisoryLock"]], None]

INTERVAL_S = 0.02
"""How often pg_locks is read while anybody watches: a fiftieth of the default lease."""


class AdvisoryWatch:
    """Reads pg_locks for all databases at once, while any is watched, and hands each database its rows."""

    def __init__(self) -> None:
        self._postgres: Postgres | None = None
        self._listeners: dict[str, RowsListener] = {}
        self._task: asyncio.Task[None] | None = None
        self.broken: str | None = None

    def serve(self, postgres: Postgres) -> None:
        self._postgres = postgres

    def listen(self, database: str, listener: RowsListener) -> None:
        self._listeners[database] = listener
        if self._postgres is not None and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._read(self._postgres))

    def unlisten(self, database: str) -> None:
        self._listeners.pop(database, None)

    async def _read(self, postgres: Postgres) -> None:
        while self._listeners:
            try:
                rows = await postgres.advisory_locks()
            except psycopg.Error as error:
                self.broken = f"pg_locks cannot be read any more: {error}"
                return
            by_database: dict[str, list[AdvisoryLock]] = {name: [] for name in self._listeners}
            for row in rows:
                if row.database in by_database:
                    by_database[row.database].append(row)
            for name, found in by_database.items():
                if (listener := self._listeners.get(name)) is not None:
                    listener(found)
            await asyncio.sleep(INTERVAL_S)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class AdvisoryAccount:
    """Turns readings of pg_locks into the account of one experiment's lock."""

    def __init__(self, account: LockAccount, whose: Callable[[int], str | None]) -> None:
        self._account = account
        self.whose = whose
        self._holder_pid: int | None = None
        self.ends_as = "lock-released"
        """What the end of the next lock that ends is called; a fault that ends sessions says: lock-lost."""

    def on_rows(self, rows: Sequence[AdvisoryLock]) -> None:
        at_ns = now_ns()
        holders = {row.pid: row for row in rows if row.granted}
        if self._holder_pid is not None and self._holder_pid not in holders:
            self._holder_pid = None
            self._account.gone("postgres", self.ends_as, at_ns)
            self.ends_as = "lock-released"
        if self._holder_pid is None and holders:
            row = next(iter(holders.values()))
            self._holder_pid = row.pid
            self._account.granted("postgres", self.whose(row.pid) or "?", at_ns, None, key=row.key)
