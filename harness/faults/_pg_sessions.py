"""What the faults share that strike at A's sessions with PostgreSQL while A charges."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

import tenacity

from harness.bench import Bench
from harness.faults._at_boundary import AtBoundary
from harness.network.tap import Fate, Message
from harness.profile import Profile

if TYPE_CHECKING:
    from harness.stack.postgres import Postgres
    from harness.stack.postgres_databases import Session

GONE_WITHIN_S = 5.0
"""How long the server is given to have ended a session that it was told to end."""
_POLL_S = 0.02


def over_the_charge(profile: Profile) -> tuple[int, bool]:
    """How many sessions A has open when it charges, and whether a transaction is open then, by the baseline."""
    sessions, transaction = 0, False
    for boundary in profile.boundaries:
        if boundary == f"{profile.points['charge']}.request":
            break
        link, label, _, side = boundary.split(".")
        if link == "postgres" and side == "request":
            sessions += (label == "startup") - (label == "terminate")
            transaction = label in ("begin", "start") or (transaction and label not in ("commit", "end", "rollback"))
    return sessions, transaction


class AtSession(AtBoundary):
    """A fault that ends sessions of A's while A's charge, or the reply to it, is held."""

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        if "postgres" not in profile.links:
            return "it uses no Postgres"
        if over_the_charge(profile)[0] == 0:
            return "it has no session with Postgres open while it charges"
        return super().inapplicable(profile, place)

    async def arm(self) -> None:
        await super().arm()
        self._evidence = self._doubt = ""

    async def strike(self, message: Message) -> Fate:
        bench = self.bench
        if bench.advisory is not None:
            bench.advisory.ends_as = "lock-lost"
        before = await sessions_of_a(bench)
        bench.strike(boundary=message.boundary)
        doomed = await self.end(before)
        if not doomed:
            self._doubt = f"A had no session to end, only {_told(before)}"
        elif left := await still_there(bench, doomed, self.patience_s):
            self._doubt = f"by pg_stat_activity {_told(left)} of A's stood for {self.patience_s:.1f} s on"
        else:
            self._evidence = f"by pg_stat_activity {_told(doomed)} of A's ended, and A went on"
        return await bench.hold_until_lifted(message)

    @property
    def patience_s(self) -> float:
        """How long the sessions are given to end."""
        return GONE_WITHIN_S

    async def end(self, sessions: Collection[Session]) -> list[Session]:
        """Ends those of A's sessions that the fault is about, and returns them."""
        raise NotImplementedError

    async def lift(self) -> None:
        if not self.bench.a.process.tree():
            self._doubt = "A had ended when it should have been charging"
        await super().lift()

    async def witness(self) -> None:
        if self.never_struck():
            return
        if self._evidence and not self._doubt:
            self.bench.landed("postgres", self._evidence)
        else:
            self.bench.not_landed(self._doubt or "A's sessions were not seen to end")


def server(bench: Bench) -> Postgres:
    """The stack's PostgreSQL: there is one, because the subject has used it."""
    assert bench.stack.postgres is not None
    return bench.stack.postgres


def database(bench: Bench) -> str:
    assert bench.database_name is not None
    return bench.database_name


async def sessions_of_a(bench: Bench) -> list[Session]:
    """A's sessions by the server's account: those whose numbers the server told A itself.

    Not those at the other ends of its tap's connections: before a server in a container stands Docker's proxy.
    """
    found = await server(bench).sessions(database(bench))
    return [session for session in found if bench.whose_session(session.pid) == "A"]


async def still_there(bench: Bench, doomed: Collection[Session], patience_s: float) -> list[Session]:
    """Which of these sessions the server still has after patience_s; none as soon as it has none."""
    pids = {session.pid for session in doomed}

    async def left() -> list[Session]:
        return [session for session in await server(bench).sessions(database(bench)) if session.pid in pids]

    poll = tenacity.AsyncRetrying(
        stop=tenacity.stop_after_delay(patience_s),
        wait=tenacity.wait_fixed(_POLL_S),
        retry=tenacity.retry_if_result(bool),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else [],
        sleep=asyncio.sleep,
    )
    return await poll(left)


def _told(sessions: Collection[Session]) -> str:
    """1 session (pid 17, idle in transaction)."""
    each = ", ".join(f"pid {session.pid}, {session.state}" for session in sessions)
    return f"{len(sessions)} session{'' if len(sessions) == 1 else 's'}" + (f" ({each})" if each else "")
