"""What the two idle timeouts of PostgreSQL share: set short for the experiment's database, and left to strike."""

from __future__ import annotations

from typing import ClassVar

from harness.faults._pg_sessions import GONE_WITHIN_S, AtSession, database, server

TIMEOUT_LEASES = 0.5
"""Shorter than LOCK_TTL_MS: who relies on the lease has reason to think that the lock stands."""


class AtTimeout(AtSession):
    """A's charge is held for so long that the server ends A's idle sessions of itself."""

    setting: ClassVar[str]

    async def arm(self) -> None:
        await super().arm()
        timeout_ms = int(TIMEOUT_LEASES * self.bench.spec.ttl_ms)
        await server(self.bench).configure(database(self.bench), {self.setting: f"{timeout_ms}ms"})

    @property
    def patience_s(self) -> float:
        return TIMEOUT_LEASES * self.bench.lease_s + GONE_WITHIN_S

    async def lift(self) -> None:
        """C's sessions are given no timeout any more."""
        await server(self.bench).configure(database(self.bench), {self.setting: "0"})
        await super().lift()
