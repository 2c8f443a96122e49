"""redis-aof-cut: the machine of a Redis with an append-only file loses power: what was not synced yet is gone.

With appendfsync everysec that is up to a second of acknowledged writes (redis.io: Redis persistence).
"""

from __future__ import annotations

import os

from redis.exceptions import RedisError

from harness.bench import Bench
from harness.faults import register
from harness.faults._aof import EVERYSEC, incremental
from harness.faults._redis_loss import OWN_KEYS, RedisLoss, breakable
from harness.history import now_ns
from harness.network.tap import Fate, Message
from harness.stack import StackError

FSYNC_MS = 1000.0
"""everysec syncs again when at least so much time has passed since the last sync."""


@register
class RedisAofCut(RedisLoss):
    """The file is synced as A asks for the lock; what is appended within a second of that is cut off.

    The server is told to sync (appendfsync always, one write, everysec again), so that the length of the file at its
    last sync is known, and when the next one is due. Had it come before the kill, the cut would be more than a power
    loss takes, and the fault has not landed.
    """

    name = "redis-aof-cut"
    title = "Redis loses power: its append-only file (everysec) ends at the last fsync"
    own_redis = EVERYSEC

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._synced_bytes = self._cut_bytes = 0
        self._synced_ns = self._killed_ns = 0

    async def arm(self) -> None:
        await super().arm()
        for boundary in self.bench.profile.boundaries:
            if boundary.startswith("redis.") and boundary.endswith(".request"):
                self.bench.at_boundary.setdefault(boundary, self._before_it_arrives)

    async def _before_it_arrives(self, message: Message) -> Fate:
        """Syncs once: before the first message of A that names the lock, or before the first of all without one."""
        lock = self.bench.lock
        if self._synced_ns or (lock is not None and lock.key.encode() not in message.info.get("args", ())):
            return Fate.DELIVER
        try:
            await self._sync()
        except (RedisError, OSError, StackError) as error:
            self.bench.history.add(
                "queue", "fault", "harness-failed", reason=f"Redis could not be made to sync: {error}"
            )
        return Fate.DELIVER

    async def _sync(self) -> None:
        server = self.bench.redis
        self._synced_ns = now_ns()
        await server.text("CONFIG", "SET", "appendfsync", "always")
        await server.text("SET", f"{OWN_KEYS}synced", "1")
        self._synced_bytes = incremental(breakable(server).directory).stat().st_size
        await server.text("CONFIG", "SET", "appendfsync", "everysec")

    async def break_redis(self) -> None:
        await self.restart(while_down=self._cut)

    def _cut(self) -> None:
        self._killed_ns = now_ns()
        file = incremental(breakable(self.bench.redis).directory)
        self._cut_bytes = file.stat().st_size - self._synced_bytes
        os.truncate(file, self._synced_bytes)

    def doubt(self) -> str | None:
        since_ms = (self._killed_ns - self._synced_ns) / 1e6
        if since_ms >= FSYNC_MS:
            return f"the kill came {since_ms:.0f} ms after the last known fsync: another may have come first"
        if self._cut_bytes <= 0:
            return "nothing had been appended to the file since its last fsync"
        return self.not_restarted() or super().doubt()

    def evidence(self) -> str:
        since_ms = (self._killed_ns - self._synced_ns) / 1e6
        return f"{super().evidence()}: {self._cut_bytes} bytes, not synced yet {since_ms:.0f} ms after the last fsync"
