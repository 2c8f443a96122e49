"""postgres-terminated: the server ends A's session, as an administrator, a failover or a restart of the server does."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from harness.faults import register
from harness.faults._pg_sessions import AtSession, database, server

if TYPE_CHECKING:
    from harness.stack.postgres_databases import Session


@register
class PostgresTerminated(AtSession):
    """pg_terminate_backend() for the session that holds A's advisory lock; for all of A's where none holds one."""

    name = "postgres-terminated"
    title = "PostgreSQL ends worker A's session (pg_terminate_backend) while A charges"

    async def end(self, sessions: Collection[Session]) -> list[Session]:
        postgres, name = server(self.bench), database(self.bench)
        holders = {lock.pid for lock in await postgres.advisory_locks(name) if lock.granted}
        chosen = [session for session in sessions if session.pid in holders] or list(sessions)
        return [session for session in chosen if await postgres.terminate(name, session.pid)]
