"""postgres-pooler: a connection pooler in transaction mode between the workers and PostgreSQL, as hosted ones have it.

A session's lock then belongs to a server connection that the pooler hands to whoever asks next.
"""

from __future__ import annotations

from harness.advisory import AdvisoryAccount
from harness.faults import register
from harness.faults._at_boundary import AtBoundary
from harness.faults._pg_sessions import database, server, sessions_of_a
from harness.network.tap import Fate, Message
from harness.profile import Profile
from harness.stack import pgbouncer
from harness.stack.accounts import ServerUnavailable


@register
class PostgresPooler(AtBoundary):
    """A and B reach PostgreSQL through one PgBouncer in transaction mode, and A's charge is held until B is through."""

    name = "postgres-pooler"
    title = "the workers reach PostgreSQL through a connection pooler in transaction mode"

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        if "postgres" not in profile.links:
            return "it uses no Postgres"
        try:
            pgbouncer.find()
        except ServerUnavailable as error:
            return str(error)
        return super().inapplicable(profile, place)

    async def arm(self) -> None:
        await super().arm()
        bench, postgres = self.bench, server(self.bench)
        pooler = await bench.stack.beside.pooler(postgres)
        for worker in ("A", "B"):
            bench.upstreams[worker, "postgres"] = (pooler.host, pooler.port)
        if bench.advisory is not None:
            # The server does not know whose a pooled session is. The first lock is A's: B comes when A has it.
            direct = bench.advisory.whose
            bench.advisory = AdvisoryAccount(bench.account, lambda port: direct(port) or self._first())
            bench.stack.advisory.listen(database(bench), bench.advisory.on_rows)
        self._pooled, self._own = 0, 0

    def _first(self) -> str | None:
        return None if self.bench.account.leases else "A"

    async def strike(self, message: Message) -> Fate:
        bench = self.bench
        self._own = len(await sessions_of_a(bench))
        self._pooled = len(await server(bench).sessions(database(bench))) - self._own
        bench.strike(boundary=message.boundary)
        return await bench.hold_until_lifted(message)

    async def lift(self) -> None:
        for worker in ("A", "B"):
            self.bench.upstreams.pop((worker, "postgres"), None)
        await super().lift()

    async def witness(self) -> None:
        if self.never_struck():
            return
        counted = f"by pg_stat_activity {self._pooled} sessions came from the pooler, {self._own} straight from A"
        if self._own or not self._pooled:
            self.bench.not_landed(counted)
        else:
            self.bench.landed("postgres", counted)
