"""redis-failover: the replica that is promoted never got the lock, because replication is asynchronous."""

from __future__ import annotations

from harness.bench import Bench
from harness.faults import register
from harness.faults._redis_loss import Keys, RedisLoss, look, told, until
from harness.network.toxics import Proxy
from harness.stack import StackError
from harness.stack.redis import RedisServer

_SYNC_TIMEOUT_S = 15.0


@register
class RedisFailover(RedisLoss):
    """A replica is in sync before A starts; then its link is held (Toxiproxy). At the strike it is promoted, everybody
    is sent to it, and the old primary is cut off, with A's lock on it that nobody sees any more.
    """

    name = "redis-failover"
    title = "Redis fails over to a replica that the lock has not reached yet"
    own_redis = ("--repl-diskless-sync-delay", "0")
    replicas = 1

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._proxy: Proxy | None = None
        self._replica: RedisServer | None = None
        self._behind: Keys | None = None
        self._roles = ("", "")
        self._left_behind: Keys | None = None

    @classmethod
    def proxies(cls, place: str) -> int:
        return 1

    async def arm(self) -> None:
        await super().arm()
        stack = self.bench.stack
        self._proxy = await stack.toxiproxy.proxy(self.bench.redis.address)
        host, port = self._proxy.address
        # loaded from the socket: through a file, Valkey looks once a second whether all has come
        options = ("--repl-diskless-load", "on-empty-db", "--replicaof", host, str(port))
        self._replica = await stack.own_redis(*options)
        await self._in_sync(self._replica)
        await self._proxy.add_toxic("bandwidth", "downstream", rate=0)

    async def _in_sync(self, replica: RedisServer) -> None:
        """Waits until the replica has what the primary has. Raises StackError."""

        async def caught_up() -> bool:
            theirs = await replica.info("replication")
            ours = await self.bench.redis.info("replication")
            return (
                theirs.get("master_link_status") == "up"
                and theirs.get("master_sync_in_progress") == "0"
                and theirs.get("slave_repl_offset") == ours.get("master_repl_offset")
            )

        if not await until(caught_up, bool, within_s=_SYNC_TIMEOUT_S):
            raise StackError(f"the replica was not in sync within {_SYNC_TIMEOUT_S:.0f} s")

    async def break_redis(self) -> None:
        bench, replica = self.bench, self._replica
        assert replica is not None
        before = (await replica.info("replication"))["role"]
        self._behind = await look(replica, bench.database)
        await replica.text("REPLICAOF", "NO", "ONE")
        self._roles = before, (await replica.info("replication"))["role"]
        old, bench.redis = bench.redis, replica
        if bench.lock is not None:
            bench.lock.follow(replica)
        await bench.watch.follow(replica)
        for worker in ("A", "B"):
            bench.link(worker, "redis").reset_all()
        self._left_behind = await look(old, bench.database)

    def doubt(self) -> str | None:
        if self._roles != ("slave", "master"):
            return f"the replica was {self._roles[0]} before and {self._roles[1]} after, not promoted"
        assert self._behind is not None
        if self.lock_key is not None and self.lock_key in self._behind.values:
            return f"the replica had got {self.lock_key} before it was promoted"
        return super().doubt()

    def evidence(self) -> str:
        assert self._left_behind is not None
        kept = told(self._left_behind, [key for key in self.gone() if key in self._left_behind.values])
        return f"{super().evidence()}: the replica that was promoted never got it (the old primary still had {kept})"

    async def clean_up(self) -> None:
        if self._replica is not None:
            await self._replica.remove()
        if self._proxy is not None:
            await self.bench.stack.toxiproxy.give_back(self._proxy)
