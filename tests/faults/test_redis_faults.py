"""Partitions and losses of Redis: each shows that it landed, and none of them can be talked into it.

A sabotaged fault does not quite do what it should. Its subject charges once, so the run would be green; it has to be
inconclusive, with the reason. All experiments run side by side, on real servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest

from harness import faults
from harness.engine import Config, Engine
from harness.experiment import Outcome
from harness.faults import FAULTS, Fault
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
from harness.settings import variant
from harness.spec import EXACTLY_ONE, INCONCLUSIVE, NO_CHARGE, Spec

TTL_MS = 1000
PLACE = "charge-request"
ONE_CHARGE = "idempotency-key"
"""Whatever becomes of its lock, it charges once: what its verdict says beyond that is the harness's own doing."""
FENCED = "fenced-read"


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


SABOTAGED: Mapping[str, tuple[type[Fault], str, str]] = {
    name: (fault, subject, reason)
    for name, fault, subject, reason in (
        ("nothing-cut", NothingCut, ONE_CHARGE, "reached Redis while it was cut"),
        ("cut-one-way", CutOneWay, ONE_CHARGE, "reached Redis while it was cut"),
        ("lost-not-late", LostNotLate, ONE_CHARGE, "it was lost, not late"),
        ("not-refused", NotRefused, ONE_CHARGE, "which should have been dropped"),
        ("refused-not-reset", RefusedNotReset, ONE_CHARGE, "was refused, not reset"),
        ("only-live-connections-reset", OnlyLiveConnectionsReset, ONE_CHARGE, "which should have been reset"),
        ("not-restarted", NotRestarted, ONE_CHARGE, "was not started again"),
        ("restarted-with-file", RestartedWithFile, ONE_CHARGE, "still had A's lock"),
        ("another-database-flushed", AnotherDatabaseFlushed, ONE_CHARGE, "still had A's lock"),
        ("expires-later", ExpiresLater, ONE_CHARGE, "still had A's lock"),
        ("room-enough", RoomEnough, ONE_CHARGE, "evicted no key"),
        ("restarted-without-file", RestartedWithoutFile, ONE_CHARGE, "should have kept"),
        ("nothing-cut-off", NothingCutOff, ONE_CHARGE, "still had A's lock"),
        ("another-sync-came", AnotherSyncCame, ONE_CHARGE, "another may have come first"),
        ("replica-keeps-up", ReplicaKeepsUp, ONE_CHARGE, "had got lock:"),
        ("counter-spared", CounterSpared, FENCED, "still had the counter"),
        ("counter-not-evicted", CounterNotEvicted, FENCED, "still had the counter"),
    )
}
HONEST = (
    *("partition-late", "partition-refused", "partition-reset"),
    *("redis-restart", "redis-aof", "redis-aof-cut", "redis-flush", "redis-eviction", "redis-failover"),
    "redis-early-expiry",
)
COUNTERS = {"counter-flush": (FENCED, PLACE), "counter-aof-cut": (FENCED, "charge-reply")}


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Mapping[str, Outcome]]:
    """Every experiment of this file, one attempt each, by its fault."""
    faults.load_all()
    before = dict(FAULTS)
    for name, (fault, _, _) in SABOTAGED.items():
        FAULTS[name] = type(fault.__name__, (fault,), {"name": name})
    try:
        with asyncio.Runner() as runner:
            yield runner.run(_run())
    finally:
        FAULTS.clear()
        FAULTS.update(before)


def disturbed(outcome: Outcome) -> bool:
    """Whether a busy machine has decided something: a stall, or a fault that took longer than a lease allows."""
    doubts = [str(event.detail["reason"]) for event in outcome.history.select("not-landed")]
    return bool(outcome.history.select("stall")) or any(" took " in doubt for doubt in doubts)


async def _run() -> Mapping[str, Outcome]:
    engine = Engine(Config([variant(ONE_CHARGE), variant(FENCED)], ttl_ms=TTL_MS))
    await engine.start()
    try:
        for subject in (ONE_CHARGE, FENCED):
            assert await engine.ready(subject) is None
        wanted = {name: (subject, PLACE) for name, (_, subject, _) in SABOTAGED.items()}
        wanted |= dict.fromkeys(HONEST, (ONE_CHARGE, PLACE)) | COUNTERS
        slots = asyncio.Semaphore(6)

        async def one(fault: str, subject: str, place: str) -> Outcome:
            async with slots:
                spec = Spec("test", subject, fault, place, TTL_MS)
                return await engine.benches.run(spec, engine.profiles[subject])

        done = await asyncio.gather(*(one(fault, *how) for fault, how in wanted.items()))
        found = dict(zip(wanted, done, strict=True))
        for fault, how in wanted.items():
            for _ in range(2):
                if disturbed(found[fault]):
                    found[fault] = await one(fault, *how)  # alone
        return found
    finally:
        await engine.stop()


@pytest.mark.parametrize("name", SABOTAGED)
def test_a_fault_that_did_not_do_what_it_should_has_not_landed(name: str, outcomes: Mapping[str, Outcome]) -> None:
    outcome = outcomes[name]
    said = [str(event.detail["reason"]) for event in outcome.history.select("not-landed")]
    assert any(SABOTAGED[name][2] in reason for reason in said), said or outcome.verdict.reason
    assert outcome.verdict.kind == INCONCLUSIVE
    assert not outcome.history.select("landed")


@pytest.mark.parametrize("name", HONEST)
def test_a_fault_that_did_what_it_should_has_landed_by_the_servers_account(
    name: str, outcomes: Mapping[str, Outcome]
) -> None:
    outcome = outcomes[name]
    assert [event.witness for event in outcome.history.select("landed")] == ["redis"], outcome.verdict.reason
    assert outcome.verdict.charges == 1


@pytest.mark.parametrize("name", [name for name in HONEST if name.startswith("redis-") and name != "redis-aof"])
def test_a_lost_lock_is_lost_in_the_account_before_b_is_granted_it(name: str, outcomes: Mapping[str, Outcome]) -> None:
    history = outcomes[name].history
    (granted,) = history.select("lock-granted", who="A")
    lost = [event for event in history if event.who == "A" and event.what in ("lock-lost", "lock-expired")]
    assert len(lost) == 1
    to_b = history.select("lock-granted", who="B")
    assert granted.t_ms < lost[0].t_ms <= to_b[0].t_ms
    assert lost[0].what == ("lock-expired" if name == "redis-early-expiry" else "lock-lost")


def test_the_lock_that_survives_a_restart_is_let_go_by_a_alone(outcomes: Mapping[str, Outcome]) -> None:
    history = outcomes["redis-aof"].history
    assert [event.who for event in history.select("lock-lost")] == []
    (released,) = history.select("lock-released", who="A")
    assert all(event.t_ms > released.t_ms for event in history.select("lock-granted", who="B"))


def test_a_partition_leaves_the_link_to_the_processor_alone(outcomes: Mapping[str, Outcome]) -> None:
    history = outcomes["partition-refused"].history
    lifted = history.select("fault-lifted")[0].t_ms
    (answered,) = history.select("charge-answered", who="A")
    assert answered.t_ms < lifted


def test_the_verdict_covers_the_customers_next_invoice(outcomes: Mapping[str, Outcome]) -> None:
    """The counter begins at 1 again: A's own invoice is charged once, and the next one is refused."""
    outcome = outcomes["counter-flush"]
    (charge,) = outcome.history.select("charge", witness="ledger")
    assert charge.detail["invoice"] == outcome.history.select("delivered", who="A")[0].detail["invoice"]
    assert outcome.verdict.kind == NO_CHARGE
    assert "next invoice" in outcome.verdict.reason
    reads = outcome.history.select("charges-read", who="C")
    assert [event.detail.get("code") for event in reads[-1:]] == ["stale_fencing_token"]


def test_the_next_invoice_counts_as_one_of_its_own(outcomes: Mapping[str, Outcome]) -> None:
    """The counter is set back, and what was charged already is known to the processor: two invoices, a charge each."""
    outcome = outcomes["counter-aof-cut"]
    charged = [str(charge.detail["invoice"]) for charge in outcome.history.select("charge", witness="ledger")]
    assert len(charged) == len(set(charged)) == 2
    assert outcome.verdict.kind == EXACTLY_ONE
    assert outcome.verdict.charges == 1


def test_a_has_the_ninth_token_after_eight_clean_invoices(outcomes: Mapping[str, Outcome]) -> None:
    for name in ("counter-flush", "counter-aof-cut"):
        history = outcomes[name].history
        tokens = [e.detail["token"] for e in history.select("request", who="A", witness="tap") if e.detail.get("token")]
        assert set(tokens) == {"9"}
        assert len({event.detail["invoice"] for event in history.select("delivered")}) == 2
