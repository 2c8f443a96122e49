"""redis-early-expiry: the lease ends before its time, as it does when the server's clock jumps forward.

Expiry follows the server's wall clock; a jump ends every lease at once (valkey-io/valkey#2651).
"""

from __future__ import annotations

from harness.faults import register
from harness.faults._redis_loss import RedisLoss, until
from harness.profile import Profile

_GONE_WITHIN_S = 2.0


@register
class RedisEarlyExpiry(RedisLoss):
    """PEXPIRE 1 on A's lock: the server itself ends the lease, and says so. Everything else stays."""

    name = "redis-early-expiry"
    title = "the lock's lease ends at once by the server's clock (PEXPIRE 1)"
    cuts_connections = False

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        reason = super().inapplicable(profile, place)
        if reason is None and (profile.lock_kind != "redis" or profile.early_release):
            return "it holds no lock that could expire while it charges"
        return reason

    async def break_redis(self) -> None:
        assert self.bench.lock is not None
        server, key = self.bench.redis, self.bench.lock.key
        await server.text("PEXPIRE", key, "1")
        await until(lambda: server.text("EXISTS", key), lambda there: there == "0", within_s=_GONE_WITHIN_S)

    def _note_loss(self) -> None:
        """Nothing to do: the server's own event, expired, says it."""
