"""postgres-second: worker B's DATABASE_URL is another PostgreSQL, as after a migration, or in another region.

What keeps workers apart in one instance knows nothing of another: that is what "only that instance" means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.faults import register
from harness.faults._at_boundary import AtBoundary
from harness.faults._pg_sessions import database
from harness.network.tap import Fate, Handler, Message
from harness.profile import Profile

if TYPE_CHECKING:
    from harness.stack.postgres import Postgres


@register
class PostgresSecond(AtBoundary):
    """B is connected to a second server, which has the same tables, and A's charge is held until B is through."""

    name = "postgres-second"
    title = "worker B's PostgreSQL is another instance than worker A's"
    second_postgres = True
    _second: Postgres | None = None

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        return "it uses no Postgres" if "postgres" not in profile.links else super().inapplicable(profile, place)

    async def arm(self) -> None:
        await super().arm()
        bench = self.bench
        self._second = await bench.stack.beside.second_postgres()
        await self._second.create_database(database(bench))
        bench.upstreams["B", "postgres"] = (self._second.host, self._second.port)
        bench.link("B", "postgres").interceptor = self._first_statement
        self._seen: list[int] = []

    def _first_statement(self, message: Message) -> Handler | None:
        """B's first statement of any kind waits until the second server was asked who is there."""
        first = message.side == "request" and message.label not in ("ssl-request", "startup", "password")
        return self._look if first and not self._seen else None

    async def _look(self, message: Message) -> Fate:
        assert self._second is not None
        ports = {connection.upstream_port for connection in self.bench.link("B", "postgres").connections}
        for session in await self._second.sessions(database(self.bench)):
            if session.client_port in ports:
                self._seen.append(session.pid)
        return Fate.DELIVER

    async def strike(self, message: Message) -> Fate:
        self.bench.strike(boundary=message.boundary)
        return await self.bench.hold_until_lifted(message)

    async def lift(self) -> None:
        self.bench.upstreams.pop(("B", "postgres"), None)
        await super().lift()

    async def witness(self) -> None:
        if self.never_struck():
            return
        if self._seen:
            self.bench.landed("postgres", f"by the second server's pg_stat_activity B was there (pid {self._seen[0]})")
        else:
            self.bench.not_landed("the second server never saw a session of B's")

    async def clean_up(self) -> None:
        if self._second is not None:
            await self._second.drop_database(database(self.bench))
