"""postgres-reset: the connections to PostgreSQL are reset, as a firewall that forgets them or a failing proxy does."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from harness.faults import register
from harness.faults._pg_sessions import AtSession

if TYPE_CHECKING:
    from harness.stack.postgres_databases import Session


@register
class PostgresReset(AtSession):
    """All connections of A's to PostgreSQL see a reset, on both sides."""

    name = "postgres-reset"
    title = "worker A's connections to PostgreSQL are reset while A charges"

    async def end(self, sessions: Collection[Session]) -> list[Session]:
        if self.bench.link("A", "postgres").reset_all():
            self.bench.history.add("tap", "A", "reset", link="postgres")
        return list(sessions)
