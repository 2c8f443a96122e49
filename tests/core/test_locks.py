"""The account of a lock against a real server: who held it, from when to when, and why it ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import redis.asyncio as aioredis

from core.conftest import Loop
from harness import locks
from harness.history import History, now_ns
from harness.launcher import Keeper
from harness.locks import KeyspaceWatch, LockAccount, RedisLock
from harness.stack.redis import EVENTS, LocalRedis

PATIENCE_S = 30.0
LOCK = "lock:cus-1"
Test = Callable[["Bench"], Coroutine[Any, Any, None]]


@dataclass
class Bench:
    """One lock, its account, and a client for those who take it."""

    client: aioredis.Redis
    lock: RedisLock
    account: LockAccount
    history: History
    server: LocalRedis

    @property
    def told(self) -> list[tuple[str, str]]:
        """(what, who) of every event of the lock."""
        return [(event.what.removeprefix("lock-"), event.who) for event in self.history]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.001)


@pytest.fixture(scope="module")
def server(loop: Loop) -> Iterator[LocalRedis]:
    async def start() -> tuple[Keeper, LocalRedis]:
        keeper = await Keeper.launch()
        server = LocalRedis(keeper, keeper.directory / "redis", databases=4, options=(), own=True)
        await server.start()
        return keeper, server

    keeper, made = loop(start())
    yield made
    loop(made.disconnect())
    keeper.shut_down()


@pytest.fixture
def watched(loop: Loop, server: LocalRedis) -> Callable[[Test], None]:
    """Runs a test with a watched lock in database 1."""

    @asynccontextmanager
    async def bench() -> AsyncIterator[Bench]:
        await server.in_database(1, ("FLUSHDB",))
        watch = KeyspaceWatch(server)
        await watch.start()
        history = History()
        account = LockAccount(history)
        lock = RedisLock(server, 1, LOCK, account, lambda _, value: value or "?")
        watch.listen(1, lock.on_event)
        client = aioredis.Redis(host=server.host, port=server.port, db=1)
        try:
            yield Bench(client, lock, account, history, server)
        finally:
            lock.stop()
            await watch.stop()
            await client.aclose()

    def run(test: Test) -> None:
        async def whole() -> None:
            async with bench() as made:
                await test(made)

        loop(whole())

    return run


def test_a_lock_that_is_taken_and_let_go(watched: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        before = now_ns()
        await bench.client.set(LOCK, "A", nx=True, px=5000)
        await bench.until(lambda: bench.account.current is not None)
        lease = bench.account.first_of("A")
        assert lease is not None
        assert lease.expires_ns is not None
        assert before <= lease.granted_ns <= now_ns()
        assert before + 4_990_000_000 <= lease.expires_ns <= now_ns() + 5_000_000_000
        await bench.client.delete(LOCK)
        await bench.until(lambda: bench.account.current is None)
        assert bench.told == [("granted", "A"), ("released", "A")]

    watched(test)


def test_a_lease_that_runs_out_is_noticed_without_anybody_asking_for_the_key(watched: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        await bench.client.set(LOCK, "A", nx=True, px=60)
        await bench.until(lambda: len(bench.told) == 2)
        assert bench.told == [("granted", "A"), ("expired", "A")]
        lease = bench.account.first_of("A")
        assert lease is not None
        assert lease.gone_ns is not None
        assert lease.gone_ns - lease.granted_ns >= 50_000_000

    watched(test)


@pytest.mark.parametrize(
    ("late_ns", "told"), [(10**12, []), (0, [("renewed", "same")])], ids=["events may come", "no event came"]
)
def test_a_key_that_is_there_when_its_lease_should_be_over_may_be_the_next_owners(
    late_ns: int, told: list[tuple[str, str]], watched: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all owners write the same value, only the events tell a renewal from the next owner's grant."""
    monkeypatch.setattr(locks, "_EVENTS_LATE_NS", late_ns)

    async def test(bench: Bench) -> None:
        await bench.client.set(LOCK, "same", nx=True, px=300)
        await bench.until(lambda: bench.account.current is not None)
        ends_ns = bench.account.leases[0].expires_ns or 0
        await bench.client.config_set("notify-keyspace-events", "")
        try:
            await bench.client.set(LOCK, "same", px=60_000)
            await bench.until(lambda: now_ns() > ends_ns + 50_000_000)
        finally:
            await bench.client.config_set("notify-keyspace-events", EVENTS)
        assert bench.told == [("granted", "same"), *told]
        for event in ("expired", "set", "expire"):
            bench.lock.on_event(event, LOCK)
        await bench.until(lambda: len(bench.account.leases) == 2)
        assert bench.told == [("granted", "same"), *told, ("expired", "same"), ("granted", "same")]

    watched(test)


@pytest.mark.parametrize("kind", ["PEXPIRE", "SET XX"])
def test_a_renewal_moves_the_end_of_the_lease(kind: str, watched: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        await bench.client.set(LOCK, "A", nx=True, px=2000)
        await bench.until(lambda: bench.account.current is not None)
        lease = bench.account.current
        assert lease is not None
        ends = lease.expires_ns
        if kind == "PEXPIRE":
            await bench.client.pexpire(LOCK, 9000)
        else:
            await bench.client.set(LOCK, "A", xx=True, px=9000)
        await bench.until(lambda: bool(lease.renewals_ns))
        assert lease.expires_ns is not None
        assert ends is not None
        assert 6_500_000_000 < lease.expires_ns - ends < 7_500_000_000 + (now_ns() - lease.granted_ns)
        assert bench.told == [("granted", "A"), ("renewed", "A")]

    watched(test)


def test_a_lock_let_go_before_the_server_could_be_asked_was_held_all_the_same(watched: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        async with bench.client.pipeline(transaction=True) as pipe:
            pipe.set(LOCK, "A", nx=True, px=5000)
            pipe.delete(LOCK)
            await pipe.execute()
        await bench.until(lambda: len(bench.told) == 2)
        assert [what for what, _ in bench.told] == ["granted", "released"]

    watched(test)


def test_a_lock_that_changes_hands_in_one_step_is_two_leases(watched: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        await bench.client.set(LOCK, "A", nx=True, px=5000)
        await bench.until(lambda: bench.account.current is not None)
        async with bench.client.pipeline(transaction=True) as pipe:
            pipe.delete(LOCK)
            pipe.set(LOCK, "B", nx=True, px=5000)
            await pipe.execute()
        await bench.until(lambda: len(bench.told) == 3)
        assert bench.told == [("granted", "A"), ("released", "A"), ("granted", "B")]
        assert bench.account.last_of("B") is bench.account.current

    watched(test)


def test_a_lock_overwritten_by_another_owner_is_lost_by_the_first(watched: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        await bench.client.set(LOCK, "A", nx=True, px=5000)
        await bench.until(lambda: bench.account.current is not None)
        await bench.client.set(LOCK, "B", px=5000)
        await bench.until(lambda: len(bench.told) == 3)
        assert bench.told == [("granted", "A"), ("lost", "A"), ("granted", "B")]

    watched(test)


def test_a_late_answer_does_not_revive_a_lease_that_is_over(watched: Callable[[Test], None]) -> None:
    """The probe asks, the lock is let go, and only then does the probe hear what there was."""

    async def test(bench: Bench) -> None:
        await bench.client.set(LOCK, "A", nx=True, px=5000)
        await bench.until(lambda: bench.account.current is not None)
        answered = asyncio.Event()
        asked = bench.server.in_database

        async def slow(database: int, *commands: tuple[Any, ...]) -> list[Any]:
            answers = await asked(database, *commands)
            await answered.wait()
            return answers

        bench.lock._server = _Slow(bench.server, slow)  # type: ignore[assignment]
        probe = asyncio.ensure_future(bench.lock.probe())
        await asyncio.sleep(0.02)
        await bench.client.delete(LOCK)
        await bench.until(lambda: bench.account.current is None)
        answered.set()
        await probe
        assert bench.account.current is None
        assert bench.told == [("granted", "A"), ("released", "A")]

    watched(test)


class _Slow:
    def __init__(self, server: LocalRedis, in_database: Any) -> None:
        self._server = server
        self.in_database = in_database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


def test_a_lock_without_a_lease_does_not_run_out(watched: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        await bench.client.setnx(LOCK, "A")
        await bench.until(lambda: bench.account.current is not None)
        lease = bench.account.current
        assert lease is not None
        assert (lease.expires_ns, lease.lease_ms) == (None, None)
        await bench.client.pexpire(LOCK, 4000)
        await bench.until(lambda: lease.expires_ns is not None)

    watched(test)


def test_flushing_the_database_loses_the_lock(watched: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        await bench.client.set(LOCK, "A", nx=True, px=5000)
        await bench.until(lambda: bench.account.current is not None)
        await bench.client.flushdb()
        await bench.lock.probe()
        assert bench.told == [("granted", "A"), ("lost", "A")]

    watched(test)


def test_other_keys_and_other_databases_are_nobodys_business(watched: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        await bench.client.set("other", "B", px=5000)
        await bench.server.in_database(2, ("SET", LOCK, "B", "PX", "5000"))
        await bench.client.set(LOCK, "A", nx=True, px=5000)
        await bench.until(lambda: bench.account.current is not None)
        assert bench.told == [("granted", "A")]
        await bench.server.in_database(2, ("FLUSHDB",))

    watched(test)


def test_a_watch_whose_server_is_gone_says_so(loop: Loop) -> None:
    async def test() -> None:
        keeper = await Keeper.launch()
        try:
            server = LocalRedis(keeper, keeper.directory / "redis", databases=1, options=(), own=True)
            await server.start()
            watch = KeyspaceWatch(server)
            await watch.start()
            assert watch.broken is None
            await server.kill()
            async with asyncio.timeout(PATIENCE_S):
                while watch.broken is None:
                    await asyncio.sleep(0.005)
            assert f"the keyspace events of {server.host}:{server.port} ended" in watch.broken
            await server.start()
            await watch.follow(server)
            assert watch.broken is None
            await watch.stop()
            await server.disconnect()
        finally:
            keeper.shut_down()

    loop(test())
