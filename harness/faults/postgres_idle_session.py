"""postgres-idle-session: idle_session_timeout is shorter than a charge, as an administrator sets it against leaks."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from harness.faults import register
from harness.faults._pg_sessions import over_the_charge
from harness.faults._pg_timeout import AtTimeout
from harness.profile import Profile

if TYPE_CHECKING:
    from harness.stack.postgres_databases import Session


@register
class PostgresIdleSession(AtTimeout):
    """The session that holds A's lock idles while A charges, outside a transaction, and the server ends it."""

    name = "postgres-idle-session"
    title = "worker A's session idles while A charges, for longer than idle_session_timeout"
    setting = "idle_session_timeout"

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        reason = super().inapplicable(profile, place)
        if reason is None and over_the_charge(profile) == (1, True):
            return "its session is in a transaction, where idle_session_timeout does not count"
        return reason

    async def end(self, sessions: Collection[Session]) -> list[Session]:
        return [session for session in sessions if session.xact_start is None]
