"""Faults that do not quite do what they should, for test_redis_faults.py: each must be found out."""

from __future__ import annotations

from harness.faults._aof import EVERYSEC
from harness.faults._redis_loss import until
from harness.faults.counter_eviction import CounterEviction
from harness.faults.counter_flush import CounterFlush
from harness.faults.partition_late import PartitionLate
from harness.faults.partition_refused import PartitionRefused
from harness.faults.partition_reset import PartitionReset
from harness.faults.redis_aof import RedisAof
from harness.faults.redis_aof_cut import RedisAofCut
from harness.faults.redis_early_expiry import RedisEarlyExpiry
from harness.faults.redis_eviction import RedisEviction
from harness.faults.redis_failover import RedisFailover
from harness.faults.redis_flush import RedisFlush
from harness.faults.redis_restart import RedisRestart
from harness.network.toxics import Proxy


class NothingCut(PartitionLate):
    async def cut(self, proxy: Proxy) -> None:
        """Toxiproxy was not told."""

    async def heal(self, proxy: Proxy) -> None:
        """Nor now."""


class CutOneWay(PartitionLate):
    """Redis hears A, A does not hear Redis: renewals would arrive."""

    async def cut(self, proxy: Proxy) -> None:
        await proxy.add_toxic("bandwidth", "downstream", rate=0)

    async def heal(self, proxy: Proxy) -> None:
        await proxy.remove_toxic("bandwidth", "downstream")


class LostNotLate(PartitionLate):
    """What A sends during the partition is thrown away."""

    async def cut(self, proxy: Proxy) -> None:
        for stream in ("upstream", "downstream"):
            await proxy.add_toxic("timeout", stream, timeout=0)

    async def heal(self, proxy: Proxy) -> None:
        for stream in ("upstream", "downstream"):
            await proxy.remove_toxic("timeout", stream)


class NotRefused(PartitionRefused):
    async def cut(self, proxy: Proxy) -> None:
        """Still enabled."""


class RefusedNotReset(PartitionReset):
    async def cut(self, proxy: Proxy) -> None:
        await proxy.enable(False)

    async def heal(self, proxy: Proxy) -> None:
        await proxy.enable(True)


class OnlyLiveConnectionsReset(PartitionReset):
    """A connects anew and gets through."""

    async def cut(self, proxy: Proxy) -> None:
        self.bench.link("A", "redis").reset_all()

    async def heal(self, proxy: Proxy) -> None:
        """There is no toxic."""


class NotRestarted(RedisRestart):
    async def break_redis(self) -> None:
        """Still running."""


class RestartedWithFile(RedisRestart):
    """Somebody switched persistence on."""

    own_redis = EVERYSEC


class AnotherDatabaseFlushed(RedisFlush):
    async def break_redis(self) -> None:
        await self.bench.redis.in_database(self.bench.database + 1, ("FLUSHDB",))


class ExpiresLater(RedisEarlyExpiry):
    async def break_redis(self) -> None:
        assert self.bench.lock is not None
        await self.bench.redis.text("PEXPIRE", self.bench.lock.key, "60000")


class RoomEnough(RedisEviction):
    """The server may use ten times more than the neighbour needs."""

    async def break_redis(self) -> None:
        await self.bench.redis.text("CONFIG", "SET", "maxmemory", "1000000000")
        await self.bench.redis.in_database(
            self.bench.database, *(("SETRANGE", f"lockproof:{n}", 9, "x") for n in range(9))
        )


class RestartedWithoutFile(RedisAof):
    """The control without what it is the control for."""

    own_redis = ()


class NothingCutOff(RedisAofCut):
    def _cut(self) -> None:
        self._killed_ns, self._cut_bytes = self._synced_ns + 1, 1


class AnotherSyncCame(RedisAofCut):
    def _cut(self) -> None:
        super()._cut()
        self._synced_ns -= 10**9


class ReplicaKeepsUp(RedisFailover):
    """The link between primary and replica is not held."""

    async def arm(self) -> None:
        await super().arm()
        assert self._proxy is not None
        await self._proxy.remove_toxic("bandwidth", "downstream")

    async def break_redis(self) -> None:
        replica, lock = self._replica, self.bench.lock
        assert replica is not None
        assert lock is not None
        await until(lambda: replica.text("EXISTS", lock.key), lambda there: there == "1", within_s=5.0)
        await super().break_redis()


class CounterSpared(CounterFlush):
    """The lock goes, the counter stays."""

    async def break_redis(self) -> None:
        assert self.bench.lock is not None
        await self.bench.redis.text("DEL", self.bench.lock.key)


class CounterNotEvicted(CounterEviction):
    async def break_redis(self) -> None:
        assert self.before is not None
        await super().break_redis()
        kept = {key: value for key, value in self.before.values.items() if key in self.counters}
        await self.bench.redis.in_database(self.bench.database, *(("SET", key, kept[key]) for key in kept))
