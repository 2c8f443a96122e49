"""redis-eviction: Redis is full and makes room with whatever was not used last, locks and counters included."""

from __future__ import annotations

from harness.bench import Bench
from harness.faults import register
from harness.faults._redis_loss import OWN_KEYS, RedisLoss

ROOM_BYTES = 512 * 1024
"""How much more than it uses the server may use when a neighbour begins to fill it."""
FILLER_BYTES = 32 * 1024
FILLERS = 400
"""Some 16 of them fit, so each evicts a key. All keys are of the same second, which is all that the server's LRU clock
tells apart, and then chance decides: one key survives 400 evictions among 18 once in 10^10 times. That it did not is
checked all the same."""


@register
class RedisEviction(RedisLoss):
    """A neighbour fills Redis under maxmemory with allkeys-lru, until all that A wrote is evicted. Connections stay."""

    name = "redis-eviction"
    title = "Redis reaches maxmemory and evicts the lock (allkeys-lru)"
    own_redis = ("--maxmemory-policy", "allkeys-lru")
    cuts_connections = False

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._evicted = 0

    async def break_redis(self) -> None:
        """One pipeline, short enough for the server to read at once: B cannot come in between."""
        server = self.bench.redis
        limit = int((await server.info("memory"))["used_memory"]) + ROOM_BYTES
        names = [f"{OWN_KEYS}{number}" for number in range(FILLERS)]
        answers = await server.in_database(
            self.bench.database,
            ("CONFIG", "SET", "maxmemory", limit),
            *(("SETRANGE", name, FILLER_BYTES - 1, "x") for name in names),
            ("CONFIG", "SET", "maxmemory", 0),
            ("UNLINK", *names),
        )
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        self._evicted = int((await server.info("stats"))["evicted_keys"])

    def doubt(self) -> str | None:
        if not self._evicted:
            return "Redis evicted no key"
        assert self.before is not None
        if kept := sorted(set(self.before.values) - set(self.gone())):
            return f"Redis evicted {self._evicted} keys, but not {', '.join(kept)}"
        return super().doubt()

    def evidence(self) -> str:
        return f"{super().evidence()}: it evicted {self._evicted} keys"
