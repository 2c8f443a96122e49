"""The account of a lock that is kept on three real servers: whose it is, and when it is nobody's any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import pytest

from core.conftest import Loop
from harness.history import History, now_ns
from harness.launcher import Keeper
from harness.locks import KeyspaceWatch, LockAccount
from harness.nodes import FIRST, QuorumLock, is_redis, judges, link_of_node
from harness.stack.redis import LocalRedis

PATIENCE_S = 30.0
LOCK = "lock:cus-1"
LINKS = [link_of_node(number) for number in (1, 2, 3)]
Servers = dict[str, tuple[LocalRedis, KeyspaceWatch]]


@dataclass
class Slow:
    """A server whose answers to the account are late. The client's own commands are not."""

    server: LocalRedis
    answer: asyncio.Event

    async def in_database(self, database: int, *commands: Any) -> Any:
        await self.answer.wait()
        return await self.server.in_database(database, *commands)


@dataclass
class Cluster:
    """A lock on three nodes, and what is said of it."""

    servers: Servers
    lock: QuorumLock
    account: LockAccount

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(event.what.removeprefix("lock-"), event.who) for event in self.account.history]

    async def on(self, numbers: str, *command: object) -> None:
        """Runs a command on some nodes, one after the other."""
        for number in numbers:
            await self.servers[LINKS[int(number) - 1]][0].in_database(0, command)

    async def take(self, numbers: str, who: str, lease_ms: int = 9000) -> None:
        await self.on(numbers, "SET", LOCK, who, "NX", "PX", lease_ms)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.001)

    def slow(self, numbers: str) -> asyncio.Event:
        """The account waits for some nodes' answers until the event is set."""
        answer = asyncio.Event()
        for link in (LINKS[int(number) - 1] for number in numbers):
            self.lock.on(link).follow(Slow(self.servers[link][0], answer))  # type: ignore[arg-type]
        return answer

    async def quiet(self, *, settled: bool = True) -> None:
        """Every event of before has been heard: events of one server come in order. settled: and asked about."""
        heard: set[str] = set()
        for link, (server, watch) in self.servers.items():
            listener = self.lock.on(link).on_event

            def hear(event: str, key: str, link: str = link, on: Callable[[str, str], None] = listener) -> None:
                on(event, key)
                if key == "bell":
                    heard.add(link)

            watch.listen(0, hear)
            await server.in_database(0, ("SET", "bell", "1"))
        await self.until(lambda: len(heard) == len(self.servers))
        if settled:
            await self.lock.settle()


@pytest.fixture(scope="module")
def servers(loop: Loop) -> Iterator[Servers]:
    async def start() -> tuple[Keeper, Servers]:
        keeper = await Keeper.launch()
        made: Servers = {}
        for link in LINKS:
            server = LocalRedis(keeper, keeper.directory / link, databases=1, options=(), own=True)
            await server.start()
            watch = KeyspaceWatch(server)
            await watch.start()
            made[link] = server, watch
        return keeper, made

    async def stop(made: Servers) -> None:
        for server, watch in made.values():
            await watch.stop()
            await server.disconnect()

    keeper, made = loop(start())
    yield made
    loop(stop(made))
    keeper.shut_down()


@pytest.fixture
def cluster(loop: Loop, servers: Servers) -> Callable[..., None]:
    """Runs a test with an empty cluster. lock_nodes: the links that the lock was on in the baseline."""

    def run(test: Callable[[Cluster], Coroutine[Any, Any, None]], lock_nodes: tuple[str, ...] = tuple(LINKS)) -> None:
        async def whole() -> None:
            account = LockAccount(History())
            places = {link: (server, 0) for link, (server, _) in servers.items()}
            lock = QuorumLock(places, LOCK, account, lambda _, value: value or "?", judges(lock_nodes, 3))
            for link, (server, watch) in servers.items():
                await server.in_database(0, ("FLUSHDB",))
                watch.listen(0, lock.on(link).on_event)
            try:
                await test(Cluster(servers, lock, account))
            finally:
                lock.stop()

        loop(whole())

    return run


def test_a_lock_is_granted_by_a_majority_and_let_go_with_it(cluster: Callable[..., None]) -> None:
    async def test(on: Cluster) -> None:
        before_ns = now_ns()
        await on.take("1", "A")
        await on.quiet()
        assert on.told == []
        second_ns = now_ns()
        await on.take("2", "A")
        await on.until(lambda: on.account.current is not None)
        lease = on.account.first_of("A")
        assert lease is not None
        assert before_ns < second_ns <= lease.granted_ns <= now_ns()
        await on.take("3", "A")
        await on.quiet()
        await on.on("1", "DEL", LOCK)
        await on.quiet()
        assert on.told == [("granted", "A")], "one of three is no majority, and no renewal either"
        await on.on("3", "DEL", LOCK)
        await on.until(lambda: on.account.current is None)
        assert on.told == [("granted", "A"), ("released", "A")]

    cluster(test)


def test_nobody_has_a_lock_whose_nodes_are_split(cluster: Callable[..., None]) -> None:
    async def test(on: Cluster) -> None:
        await on.take("1", "A")
        await on.take("2", "B")
        await on.quiet()
        assert on.told == []
        await on.take("3", "B")
        await on.until(lambda: on.told == [("granted", "B")])

    cluster(test)


def test_the_lease_ends_when_too_few_nodes_are_left(cluster: Callable[..., None]) -> None:
    """The second of three to run out decides, not the first and not the last."""

    async def test(on: Cluster) -> None:
        for number, lease_ms in (("1", 60), ("2", 160), ("3", 9000)):
            await on.take(number, "A", lease_ms)
        await on.until(lambda: len(on.told) == 2)
        assert on.told == [("granted", "A"), ("expired", "A")]
        lease = on.account.first_of("A")
        assert lease is not None
        assert lease.gone_ns is not None
        assert lease.gone_ns - lease.granted_ns > 130_000_000

    cluster(test)


def test_a_lease_is_renewed_when_a_majority_is(cluster: Callable[..., None]) -> None:
    async def test(on: Cluster) -> None:
        await on.take("123", "A", 2000)
        await on.quiet()
        lease = on.account.current
        assert lease is not None
        assert lease.expires_ns is not None
        ends_ns = lease.expires_ns
        await on.on("1", "PEXPIRE", LOCK, 9000)
        await on.quiet()
        assert on.told == [("granted", "A")]
        await on.on("2", "PEXPIRE", LOCK, 9000)
        await on.until(lambda: len(on.told) == 2)
        await on.on("3", "PEXPIRE", LOCK, 9000)
        await on.quiet()
        assert on.told == [("granted", "A"), ("renewed", "A")]
        assert lease.expires_ns - ends_ns > 6_000_000_000

    cluster(test)


def test_a_node_that_answers_late_is_waited_for_before_the_lock_is_called_gone(cluster: Callable[..., None]) -> None:
    """Else it came to be granted twice, to one that had it all the time."""

    async def test(on: Cluster) -> None:
        answer = on.slow("3")
        await on.take("123", "A")
        await on.until(lambda: on.account.current is not None)
        await on.on("1", "DEL", LOCK)
        await on.quiet(settled=False)
        answer.set()
        await on.quiet()
        assert on.told == [("granted", "A")], "two of three have it"
        before_ns = now_ns()
        await on.on("2", "DEL", LOCK)
        await on.until(lambda: on.account.current is None)
        assert on.told == [("granted", "A"), ("released", "A")]
        lease = on.account.first_of("A")
        assert lease is not None
        assert lease.gone_ns is not None
        assert lease.gone_ns > before_ns

    cluster(test)


@pytest.mark.parametrize("order", ["".join(order) for order in permutations("123")])
def test_the_nodes_may_answer_in_any_order(order: str, cluster: Callable[..., None]) -> None:
    """The second answer makes the majority, and the third may tell that it was one sooner."""

    async def test(on: Cluster) -> None:
        answers = {number: on.slow(number) for number in "123"}
        await on.take("123", "A")
        await on.quiet(settled=False)
        for number in order:
            answers[number].set()
            await on.lock.on(LINKS[int(number) - 1]).settle()
        assert on.told == [("granted", "A")]
        await on.on("1", "DEL", LOCK)
        await on.quiet()
        assert on.told == [("granted", "A")]
        await on.on("2", "DEL", LOCK)
        await on.until(lambda: on.account.current is None)
        await on.take("12", "B")
        await on.until(lambda: on.account.current is not None)
        assert on.told == [("granted", "A"), ("released", "A"), ("granted", "B")]

    cluster(test)


def test_what_is_heard_in_one_turn_of_the_loop_is_asked_about_before_the_lock_is_called_gone(
    cluster: Callable[..., None],
) -> None:
    async def test(on: Cluster) -> None:
        await on.take("12", "A")
        await on.until(lambda: on.account.current is not None)
        for number in (1, 3):
            on.servers[LINKS[number - 1]][1].listen(0, lambda event, key: None)
        await on.take("3", "A")
        await on.on("1", "DEL", LOCK)
        on.lock.on(LINKS[2]).on_event("set", LOCK)
        on.lock.on(LINKS[0]).on_event("del", LOCK)
        await on.lock.settle()
        assert on.told == [("granted", "A")], "nodes 2 and 3 have it"

    cluster(test)


def test_a_lock_that_was_let_go_before_any_node_has_answered_was_held(cluster: Callable[..., None]) -> None:
    async def test(on: Cluster) -> None:
        answer = on.slow("123")
        await on.take("123", "A")
        await on.on("123", "DEL", LOCK)
        await on.quiet(settled=False)
        answer.set()
        await on.quiet()
        assert [what for what, _ in on.told] == ["granted", "released"]

    cluster(test)


def test_a_node_that_is_gone_before_it_has_answered_is_not_waited_for(cluster: Callable[..., None]) -> None:
    class Gone:
        async def in_database(self, database: int, *commands: Any) -> Any:
            raise ConnectionRefusedError

    async def test(on: Cluster) -> None:
        on.lock.on(LINKS[0]).follow(Gone())  # type: ignore[arg-type]
        await on.take("123", "A")
        await on.until(lambda: on.account.current is not None)
        await on.on("2", "DEL", LOCK)
        await on.until(lambda: on.account.current is None)
        assert on.told == [("granted", "A"), ("released", "A")]

    cluster(test)


def test_a_node_that_is_gone_leaves_a_lock_to_the_other_two_and_no_more(cluster: Callable[..., None]) -> None:
    async def test(on: Cluster) -> None:
        await on.take("123", "A")
        await on.quiet()
        on.lock.on(LINKS[1]).lost("A", now_ns())
        assert on.account.current is not None
        on.lock.lost("A", now_ns())  # of what breaks, the first node is meant
        assert on.account.current is None
        assert on.told == [("granted", "A"), ("lost", "A")]

    cluster(test)


def test_a_lock_that_was_on_one_node_in_the_baseline_is_that_nodes(cluster: Callable[..., None]) -> None:
    async def test(on: Cluster) -> None:
        await on.take("13", "B")
        await on.quiet()
        assert on.told == []
        await on.take("2", "A")
        await on.until(lambda: on.told == [("granted", "A")])

    cluster(test, (LINKS[1],))


def test_the_judges_are_all_nodes_where_the_lock_was_on_most() -> None:
    assert judges(LINKS[:2], 3) == LINKS
    assert judges([LINKS[2]], 3) == [LINKS[2]]
    assert judges(LINKS[:2], 5) == LINKS[:2]


def test_the_links_of_nodes_are_redis_links() -> None:
    assert LINKS == [FIRST, "redis-2", "redis-3"]
    assert all(map(is_redis, LINKS))
    assert not is_redis("processor")
