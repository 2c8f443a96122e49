"""redis-restart: Redis without persistence is started again, as after an OOM kill or in a rescheduled pod."""

from __future__ import annotations

from harness.faults import register
from harness.faults._redis_loss import RedisLoss


@register
class RedisRestart(RedisLoss):
    """kill -9 and start again: whatever was in memory is gone."""

    name = "redis-restart"
    title = "Redis without persistence is killed (SIGKILL) and started again"

    async def break_redis(self) -> None:
        await self.restart()

    def doubt(self) -> str | None:
        return self.not_restarted() or super().doubt()
