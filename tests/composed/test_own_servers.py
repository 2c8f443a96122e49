"""Servers of one experiment's own: broken at will, and nobody else notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from docker.errors import NotFound
from redis.exceptions import RedisError
from tenacity import AsyncRetrying, retry_if_result, stop_after_delay, wait_fixed

from harness.history import now_ns
from harness.stack import StackError
from harness.stack.compose import ComposeStack
from harness.stack.containers import ContainerRedis

AOF = ("--appendonly", "yes", "--appendfsync", "always")


@asynccontextmanager
async def own(stack: ComposeStack, *options: str) -> AsyncIterator[ContainerRedis]:
    server = await stack.own_redis(*options)
    try:
        yield server
    finally:
        await server.remove()


async def silent(server: ContainerRedis) -> bool:
    """Whether a new connection gets no answer to PING."""
    client = server.new_client()
    try:
        await asyncio.wait_for(client.ping(), 1)
    except (RedisError, OSError, TimeoutError):
        return True
    finally:
        await client.aclose()
    return False


def test_a_restarted_server_keeps_its_port_and_loses_what_it_did_not_write(
    stack: ComposeStack, runner: asyncio.Runner
) -> None:
    async def lose() -> None:
        async with own(stack) as server:
            address = server.address
            await server.client.set("lock", "A")
            await server.restart()
            assert server.address == address
            assert await server.client.get("lock") is None

    runner.run(lose())


def test_a_restarted_server_keeps_what_it_wrote_unless_the_file_is_cut_back(
    stack: ComposeStack, runner: asyncio.Runner
) -> None:
    async def keep_and_cut() -> None:
        async with own(stack, *AOF) as server:
            await server.client.set("fence", "1")
            (file,) = server.directory.glob("appendonlydir/*.incr.aof")
            size = file.stat().st_size
            await server.client.set("fence", "2")
            await server.restart()
            assert await server.client.get("fence") == b"2"

            def cut() -> None:
                with file.open("r+b") as log:
                    log.truncate(size)

            await server.restart(while_down=cut)
            assert await server.client.get("fence") == b"1"

    runner.run(keep_and_cut())


def test_a_server_is_started_again_well_within_a_lease(stack: ComposeStack, runner: asyncio.Runner) -> None:
    async def restart_ms() -> float:
        async with own(stack) as server:
            took = []
            for _ in range(5):
                before = now_ns()
                await server.restart()
                took.append((now_ns() - before) / 1e6)
            return min(took)

    assert runner.run(restart_ms()) < 200


def test_the_next_server_in_a_container_has_nothing_of_the_one_before(
    stack: ComposeStack, runner: asyncio.Runner
) -> None:
    async def twice() -> tuple[Any, ...]:
        async with own(stack, *AOF, "--maxmemory", "1gb") as server:
            await server.client.set("lock", "A")
            first = server._cell
        async with own(stack) as server:
            left = sorted(path.name for path in server.directory.iterdir())
            maxmemory = (await server.client.config_get("maxmemory"))["maxmemory"]
            return server._cell is first, await server.client.get("lock"), left, maxmemory

    assert runner.run(twice()) == (True, None, [], "0")


def test_a_container_that_was_paused_or_cut_off_is_not_used_again(stack: ComposeStack, runner: asyncio.Runner) -> None:
    async def spoil() -> str:
        async with own(stack) as server:
            await server.pause()
            await server.unpause()
            spoiled = server._cell
        async with own(stack) as server:
            assert server._cell is not spoiled
        return spoiled.name

    name = runner.run(spoil())
    with pytest.raises(NotFound):
        stack._cells._site.client.containers.get(name)


def test_a_server_that_ended_by_itself_is_told_with_its_log(stack: ComposeStack, runner: asyncio.Runner) -> None:
    async def end() -> None:
        async with own(stack) as server:
            with suppress(RedisError):
                await server.client.shutdown(nosave=True)
            with pytest.raises(StackError, match="ended by itself"):
                await server.restart()

    runner.run(end())


def test_options_are_the_server_s_whatever_is_in_them(stack: ComposeStack, runner: asyncio.Runner) -> None:
    odd = 'a "quoted" word\\'

    async def told() -> tuple[Any, ...]:
        async with own(stack, "--save", "", "--masteruser", odd) as server:
            return await server.client.config_get("save"), await server.client.config_get("masteruser")

    assert runner.run(told()) == ({"save": ""}, {"masteruser": odd})


def test_a_paused_server_holds_its_connections_and_answers_nobody(stack: ComposeStack, runner: asyncio.Runner) -> None:
    async def pause() -> None:
        async with own(stack) as server:
            reader, writer = await asyncio.open_connection(*server.address)
            await server.pause()
            assert await server.state() == "paused"
            writer.write(b"PING\r\n")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.readline(), 0.5)
            await server.unpause()
            assert await asyncio.wait_for(reader.readline(), 10) == b"+PONG\r\n"
            writer.close()

    runner.run(pause())


def test_a_server_that_is_cut_off_answers_nobody_and_is_itself_again_when_reconnected(
    stack: ComposeStack, runner: asyncio.Runner
) -> None:
    async def cut_off() -> None:
        async with own(stack) as server:
            address = server.address
            await server.client.set("lock", "A")
            await server.cut_off()
            assert await server.state() == "running"
            assert await silent(server)
            await server.reconnect()
            assert server.address == address
            assert await server.client.get("lock") == b"A"
            proxy = await stack.toxiproxy.proxy(server.address)
            reader, writer = await asyncio.open_connection(*proxy.address)
            writer.write(b"GET lock\r\n")
            assert await asyncio.wait_for(reader.readline(), 10) == b"$1\r\n"
            writer.close()
            await stack.toxiproxy.give_back(proxy)

    runner.run(cut_off())


def test_a_replica_follows_a_server_by_its_address_on_this_host_and_can_be_promoted(
    stack: ComposeStack, runner: asyncio.Runner
) -> None:
    async def fail_over() -> None:
        async with own(stack) as primary, own(stack, "--replicaof", primary.host, str(primary.port)) as replica:

            async def replication() -> dict[str, Any]:
                info: dict[str, Any] = await replica.client.info("replication")
                return info

            await AsyncRetrying(
                retry=retry_if_result(lambda info: info["master_link_status"] != "up"),
                wait=wait_fixed(0.05),
                stop=stop_after_delay(15),
            )(replication)
            await primary.client.set("lock", "A")
            assert await primary.client.wait(1, 5000) == 1
            await primary.kill()
            await replica.client.replicaof("NO", "ONE")
            assert await replica.client.get("lock") == b"A"
            assert (await replication())["role"] == "master"

    runner.run(fail_over())


def test_nothing_that_happens_to_a_server_of_one_s_own_reaches_the_shared_one(
    stack: ComposeStack, runner: asyncio.Runner
) -> None:
    async def break_one() -> None:
        connection = stack.redis.new_client()
        before = (await connection.info("server"))["run_id"], await connection.client_id()
        async with own(stack) as server:
            await server.client.flushall()
            await server.restart()
            await server.cut_off()
        assert ((await connection.info("server"))["run_id"], await connection.client_id()) == before
        assert stack.died() is None
        await connection.aclose()

    runner.run(break_one())


def test_servers_under_test_have_no_rights_on_the_host(stack: ComposeStack, runner: asyncio.Runner) -> None:
    async def inspect() -> None:
        async with own(stack) as server:
            container = server._cell.container
            await server.state()
            config = container.attrs["HostConfig"]
            assert not config["Privileged"]
            assert config["CapDrop"] == ["ALL"]
            assert container.attrs["Config"]["User"].split(":")[0] not in ("", "0", "root")
            writable = {bind.split(":")[0] for bind in config["Binds"] if not bind.endswith(":ro")}
            assert writable == {str(server.directory)}
            assert container.exec_run(["sh", "-c", "echo >>/data/dump.rdb"]).exit_code == 0
            assert container.exec_run(["sh", "-c", "echo >>/cell/redis.conf"]).exit_code != 0

    runner.run(inspect())
