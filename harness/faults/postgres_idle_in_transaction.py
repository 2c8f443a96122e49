"""postgres-idle-in-transaction: idle_in_transaction_session_timeout is shorter than a charge, as many set it."""

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
class PostgresIdleInTransaction(AtTimeout):
    """A's transaction idles while A charges, and the server ends the session."""

    name = "postgres-idle-in-transaction"
    title = "worker A's transaction idles while A charges, for longer than idle_in_transaction_session_timeout"
    setting = "idle_in_transaction_session_timeout"

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        reason = super().inapplicable(profile, place)
        if reason is None and not over_the_charge(profile)[1]:
            return "it has no transaction open while it charges"
        return reason

    async def end(self, sessions: Collection[Session]) -> list[Session]:
        return [session for session in sessions if session.xact_start is not None]
