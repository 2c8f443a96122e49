"""redis-flush: somebody empties Redis, as a deployment script or a cache purge does it."""

from __future__ import annotations

from harness.faults import register
from harness.faults._redis_loss import RedisLoss


@register
class RedisFlush(RedisLoss):
    """FLUSHALL. Connections stay."""

    name = "redis-flush"
    title = "Redis is emptied (FLUSHALL)"
    cuts_connections = False

    async def break_redis(self) -> None:
        await self.bench.redis.text("FLUSHALL", "SYNC")
