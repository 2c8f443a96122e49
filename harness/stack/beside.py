"""Servers that a few experiments put beside, or in front of, the stack's own: started when the first one asks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from harness.stack.pgbouncer import PgBouncer
from harness.stack.postgres import Postgres
from harness.stack.postgres_databases import Databases

if TYPE_CHECKING:
    from harness.launcher import Launcher


class Beside:
    """One second PostgreSQL and one PgBouncer for a run; whoever asks first waits until it is up."""

    def __init__(self, launcher: Launcher, directory: Path) -> None:
        self._launcher = launcher
        self._directory = directory
        self._starting = asyncio.Lock()
        self._second: Postgres | None = None
        self._pooler: PgBouncer | None = None

    async def second_postgres(self) -> Postgres:
        """A PostgreSQL that knows nothing of the first. Raises ServerUnavailable."""
        async with self._starting:
            if self._second is None:
                second = Postgres()
                await second.start(self._launcher, self._directory / "second")
                self._second = second
            return self._second

    async def pooler(self, server: Databases) -> PgBouncer:
        """A PgBouncer in transaction mode in front of a server. Raises ServerUnavailable."""
        async with self._starting:
            if self._pooler is None:
                pooler = PgBouncer()
                await pooler.start(
                    self._launcher,
                    self._directory,
                    (server.host, server.port),
                    user=server.user,
                    password=server.password or "",
                )
                self._pooler = pooler
            return self._pooler

    async def stop(self) -> None:
        """Ends what was started and removes its files."""
        if self._pooler is not None:
            await self._pooler.stop()
            self._pooler = None
        if self._second is not None:
            await self._second.stop()
            self._second = None
