"""A Redis of somebody's own: what is in it stays, how it is configured stays, and what cannot be used is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import redis

from external.conftest import PASSWORD, Server, Start
from harness.locks import KeyspaceWatch
from harness.stack import StackError, free_port
from harness.stack.addresses import ServerUrl
from harness.stack.external_redis import MOST_DATABASES, ExternalRedis

FOREIGN = {0: "session:1", 3: "cart:7", 15: "lock:cus-somebody"}


@asynccontextmanager
async def external(server: Server, database: str | None = None, *, flush: bool = False) -> AsyncIterator[ExternalRedis]:
    found = ExternalRedis(ServerUrl("127.0.0.1", server.port, None, server.password, database), flush=flush)
    try:
        await found.ready()
        yield found
    finally:
        await found.disconnect()


def fill(server: Server) -> dict[str, str]:
    for database, key in FOREIGN.items():
        server.client(database).set(key, "theirs")
    return server.everything()


def test_only_databases_that_were_empty_are_used(start: Start) -> None:
    server = start()
    fill(server)

    async def used() -> list[int]:
        async with external(server) as found:
            return list(found.databases)

    assert asyncio.run(used()) == [n for n in range(16) if n not in FOREIGN]


def test_no_more_databases_are_used_than_is_said(start: Start) -> None:
    server = start("--databases", "500")

    async def used() -> int:
        async with external(server) as found:
            return len(found.databases)

    assert asyncio.run(used()) == MOST_DATABASES


def test_databases_are_counted_where_config_is_forbidden(start: Start) -> None:
    server = start("--databases", "5", "--rename-command", "CONFIG", "")

    async def used() -> list[int]:
        async with external(server) as found:
            return list(found.databases)

    assert asyncio.run(used()) == [0, 1, 2, 3, 4]


def test_of_the_keys_that_appeared_only_those_of_the_experiment_are_deleted(start: Start) -> None:
    server = start()

    async def experiment() -> None:
        async with external(server, "2") as found:
            theirs = server.client(2)
            theirs.set("there-before", "theirs")
            await found.lend(2)
            theirs.mset({"came-meanwhile": "theirs", "named": "ours", "fence:cus-1-00007": "ours", "count-inv-9": "1"})
            await found.take_back(2, {b"named", b"there-before", b"SET"}, [b"cus-1-00007", b"inv-9"])

    asyncio.run(experiment())
    assert set(server.everything()) == {"db2/there-before", "db2/came-meanwhile"}


def test_told_so_a_database_is_emptied_and_no_other(start: Start) -> None:
    server = start()
    fill(server)

    async def experiment() -> list[int]:
        async with external(server, flush=True) as found:
            await found.lend(3)
            server.client(3).set("ours", "1")
            await found.take_back(3, set(), [])
            return list(found.databases)

    assert asyncio.run(experiment()) == list(range(16))
    assert set(server.everything()) == {"db0/session:1", "db15/lock:cus-somebody"}


@pytest.mark.parametrize("had", ["", "Kx", "AKE", "Eg$lshzxetd"])
def test_keyspace_events_are_set_back_as_they_were(start: Start, had: str) -> None:
    server = start()
    server.client().config_set("notify-keyspace-events", had)
    before = server.client().config_get("notify-keyspace-events")
    heard: list[tuple[str, str]] = []

    async def listen() -> None:
        async with external(server) as found:
            watch = KeyspaceWatch(found)
            await watch.start()
            watch.listen(4, lambda event, key: heard.append((event, key)))
            server.client(4).set("lock", "A", px=1)
            server.client(4).delete("lock")
            for _ in range(500):
                if len(heard) >= 3:
                    break
                await asyncio.sleep(0.01)
            await watch.stop()
            await found.disable_events()

    asyncio.run(listen())
    assert heard[:2] == [("set", "lock"), ("expire", "lock")]
    assert server.client().config_get("notify-keyspace-events") == before


def test_keyspace_events_that_somebody_has_changed_meanwhile_are_left_as_they_are(start: Start) -> None:
    server = start()

    async def change() -> None:
        async with external(server) as found:
            await found.enable_events(found.client)
            server.client().config_set("notify-keyspace-events", "Ex")
            await found.disable_events()

    asyncio.run(change())
    assert server.client().config_get("notify-keyspace-events") == {"notify-keyspace-events": "xE"}


@pytest.mark.parametrize(
    ("client", "told"),
    [
        (lambda client: client.flushall(), "has sent FLUSHALL"),
        (lambda client: client.config_set("notify-keyspace-events", "Ex"), "has set notify-keyspace-events to 'xE'"),
    ],
)
def test_what_a_client_does_to_all_experiments_is_noticed(
    start: Start, client: Callable[[redis.Redis], object], told: str
) -> None:
    server = start()
    server.client().flushall()  # before the run: nobody's business

    async def check() -> tuple[str | None, str | None]:
        async with external(server) as found:
            watch = KeyspaceWatch(found)
            await watch.start()
            await watch.check()
            before = watch.broken
            client(server.client())
            await watch.check()
            await watch.stop()
            return before, watch.broken

    before, after = asyncio.run(check())
    assert before is None
    assert told in (after or "")


def test_where_events_cannot_be_switched_on_the_remedy_is_told(start: Start) -> None:
    server = start("--rename-command", "CONFIG", "")

    async def ask() -> None:
        async with external(server) as found:
            await found.enable_events(found.client)

    with pytest.raises(StackError, match="set notify-keyspace-events to EA"):
        asyncio.run(ask())


def test_a_user_who_may_not_listen_is_told_so(start: Start) -> None:
    server = start()
    server.client().acl_setuser(
        "job", enabled=True, reset_channels=True, passwords=[f"+{PASSWORD}"], keys=["*"], commands=["+@all"]
    )

    async def listen() -> None:
        found = ExternalRedis(ServerUrl("127.0.0.1", server.port, "job", PASSWORD, None))
        await found.ready()
        try:
            await KeyspaceWatch(found).start()
        finally:
            await found.disconnect()

    with pytest.raises(redis.RedisError, match="channel"):
        asyncio.run(listen())


def refused(server: Server, *, password: str | None = None, database: str | None = None) -> str:
    async def ask() -> None:
        found = ExternalRedis(ServerUrl("127.0.0.1", server.port, None, password, database))
        try:
            await found.ready()
        finally:
            await found.disconnect()

    with pytest.raises(StackError) as caught:
        asyncio.run(ask())
    return str(caught.value)


def test_a_database_that_holds_something_is_refused_with_the_way_out(start: Start) -> None:
    server = start()
    fill(server)
    assert "holds keys in database 3" in (told := refused(server, database="3"))
    assert "--harness-redis-flush" in told


def test_a_database_that_does_not_exist_is_refused(start: Start) -> None:
    server = start("--databases", "4")

    async def use() -> None:
        async with external(server, "9") as found:
            await found.lend(9)

    with pytest.raises((StackError, redis.RedisError), match="out of range"):
        asyncio.run(use())


def test_a_wrong_password_is_told_at_once_and_not_repeated_in_the_message(start: Start) -> None:
    server = start(password=PASSWORD)
    told = refused(server, password="hunter2")
    assert "refuses the user or the password" in told
    assert "hunter2" not in told
    assert "refuses" in refused(server)


def test_a_replica_is_refused(start: Start) -> None:
    primary = start()
    assert "is a replica" in refused(start("--replicaof", "127.0.0.1", str(primary.port)))


def test_a_cluster_is_refused(start: Start) -> None:
    bus = str(free_port())  # else the port and 10,000, which one port in five has no room for
    assert "cluster mode" in refused(start("--cluster-enabled", "yes", "--cluster-port", bus))


def test_a_server_that_is_not_there_is_told_within_seconds(start: Start) -> None:
    server = start()
    server.client().shutdown(nosave=True)
    assert "does not answer" in refused(server)
