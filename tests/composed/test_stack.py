"""The composed stack on a real engine: what is shared."""

from __future__ import annotations

import asyncio
import socket

import pytest
from docker import DockerClient

from harness.history import now_ns
from harness.launcher import Keeper
from harness.stack import Address, StackError, docker_engine
from harness.stack.compose import ComposeStack
from harness.stack.docker_engine import published_ports
from harness.stack.project import PORTS, SERVICES


async def ping_ms(address: Address) -> float:
    """One round trip to a Redis server on a connection that is open already."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        before = now_ns()
        writer.write(b"PING\r\n")
        assert await asyncio.wait_for(reader.readline(), 10) == b"+PONG\r\n"
        return (now_ns() - before) / 1e6
    finally:
        writer.close()
        await writer.wait_closed()


def test_every_server_answers_and_says_its_version(stack: ComposeStack) -> None:
    assert stack.versions.redis.split()[0] in ("redis", "valkey")
    assert stack.versions.toxiproxy[0].isdigit()
    assert stack.versions.postgres is not None
    assert int(stack.versions.postgres.split(".")[0]) >= 13
    assert stack.processor.boot
    assert stack.died() is None


def test_nothing_is_published_beyond_loopback(stack: ComposeStack) -> None:
    for name in SERVICES:
        bound = published_ports(stack._containers[name])
        assert bound, name
        assert {host for host, _ in bound.values()} == {"127.0.0.1"}, name


def test_the_processor_has_an_address_for_each_role_and_our_clock(stack: ComposeStack, runner: asyncio.Runner) -> None:
    assert len(set(stack.processor.payment.values())) == 3
    assert runner.run(stack.processor.clock_error_ms()) < 1000


def test_a_toxic_slows_what_goes_through_it_and_nothing_else(stack: ComposeStack, runner: asyncio.Runner) -> None:
    async def measure() -> tuple[float, float]:
        proxy = await stack.toxiproxy.proxy(stack.redis.address, [("latency", "downstream", {"latency": 300})])
        try:
            return await ping_ms(proxy.address), await ping_ms(stack.redis.address)
        finally:
            await stack.toxiproxy.give_back(proxy)

    slowed, direct = runner.run(measure())
    assert slowed >= 300 > direct


async def knock(address: Address) -> str:
    """What a new connection meets."""
    try:
        reader, writer = await asyncio.open_connection(*address)
        try:
            writer.write(b"PING\r\n")
            answer = await asyncio.wait_for(reader.readline(), 10)
        finally:
            writer.close()
    except ConnectionRefusedError:
        return "refused"
    except ConnectionResetError:
        return "reset"
    return "open" if answer else "closed"


def test_a_link_is_refused_and_reset_as_it_is_without_docker_s_proxy(
    stack: ComposeStack, runner: asyncio.Runner
) -> None:
    if stack.no_refusals is not None:
        pytest.skip(stack.no_refusals)

    async def meet() -> list[str]:
        proxy = await stack.toxiproxy.proxy(stack.redis.address)
        try:
            met = [await knock(proxy.address)]
            await proxy.enable(False)
            met.append(await knock(proxy.address))
            await proxy.enable(True)
            await proxy.add_toxic("reset_peer", "downstream", timeout=0)
            return [*met, await knock(proxy.address)]
        finally:
            await stack.toxiproxy.give_back(proxy)

    assert runner.run(meet()) == ["open", "refused", "reset"]


def test_where_only_published_ports_are_reached_they_are_used_and_what_docker_s_proxy_hides_is_named(
    client: DockerClient, runner: asyncio.Runner, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSE_PROJECT_NAME", "lockproof-not-up")
    monkeypatch.setattr(docker_engine, "own_address", lambda container, network: "192.0.2.1")  # TEST-NET-1, nobody's

    async def use() -> tuple[str | None, set[str], str, int]:
        stack = ComposeStack(keeper)
        await stack.start()
        try:
            assert stack.postgres is not None
            proxy = await stack.toxiproxy.proxy(stack.redis.address)
            hosts = {stack.redis.host, stack.postgres.host, proxy.address[0]}
            hosts |= {host for host, _ in stack.processor.payment.values()}
            return stack.no_refusals, hosts, await knock(proxy.address), len(await stack.postgres.lease())
        finally:
            await stack.stop()

    why, hosts, met, length = runner.run(use())
    assert why is not None
    assert "Docker's proxy" in why
    assert hosts == {"127.0.0.1"}
    assert met == "open"
    assert length > 0


@pytest.mark.parametrize("link", ["processor", "postgres"])
def test_toxiproxy_reaches_every_server_that_has_a_link(stack: ComposeStack, runner: asyncio.Runner, link: str) -> None:
    async def talk() -> bytes:
        if link == "processor":
            upstream, request = stack.processor.payment["B"], b"GET /healthz HTTP/1.0\r\n\r\n"
        else:
            assert stack.postgres is not None
            upstream, request = (stack.postgres.host, stack.postgres.port), b"\0\0\0\x08\x04\xd2\x16\x2f"  # SSLRequest
        proxy = await stack.toxiproxy.proxy(upstream)
        try:
            reader, writer = await asyncio.open_connection(*proxy.address)
            writer.write(request)
            try:
                return await asyncio.wait_for(reader.read(12), 10)
            finally:
                writer.close()
                await writer.wait_closed()
        finally:
            await stack.toxiproxy.give_back(proxy)

    assert runner.run(talk()) == {"processor": b"HTTP/1.1 200", "postgres": b"N"}[link]


def test_a_listener_that_was_given_back_is_used_again(stack: ComposeStack, runner: asyncio.Runner) -> None:
    async def use_them_all() -> set[Address]:
        used = set()
        for _ in range(len(published_ports(stack._containers["toxiproxy"])) + 2):
            proxy = await stack.toxiproxy.proxy(stack.redis.address)
            used.add(proxy.address)
            await stack.toxiproxy.give_back(proxy)
        return used

    listeners = published_ports(stack._containers["toxiproxy"])
    del listeners[PORTS["toxiproxy"]]
    used = runner.run(use_them_all())
    assert len(used) == len(listeners)
    assert {port for _, port in used} in (set(listeners), {port for _, port in listeners.values()})


def test_a_server_that_toxiproxy_cannot_reach_is_refused_by_name(stack: ComposeStack, runner: asyncio.Runner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as here:
        port = here.getsockname()[1]
        with pytest.raises(StackError, match=f"cannot reach 127.0.0.1:{port}"):
            runner.run(stack.toxiproxy.proxy(("127.0.0.1", port)))


def test_each_experiment_gets_a_postgres_database_of_its_own(stack: ComposeStack, runner: asyncio.Runner) -> None:
    async def lease_two() -> tuple[str, str, object]:
        postgres = stack.postgres
        assert postgres is not None
        one, two = await postgres.lease(), await postgres.lease()
        async with await postgres.connect(one) as connection:
            await connection.execute("SELECT pg_advisory_lock(7)")
            held = [lock.key for lock in await postgres.advisory_locks(one)]
        await postgres.give_back(one)
        await postgres.give_back(two)
        return one, two, held

    one, two, held = runner.run(lease_two())
    assert one != two
    assert held == ["7"]


def test_the_workers_role_is_no_superuser_and_its_clean_databases_are_used_again(
    stack: ComposeStack, runner: asyncio.Runner
) -> None:
    async def lease_again() -> tuple[object, str, str, str]:
        postgres = stack.postgres
        assert postgres is not None
        first = await postgres.lease()
        async with await postgres.connect(first) as connection:
            row = await (await connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = user")).fetchone()
        await postgres.give_back(first)
        second = await postgres.lease()
        async with await postgres.connect(second) as connection:
            await connection.execute("CREATE TABLE of_a_subject ()")
        await postgres.give_back(second)
        third = await postgres.lease()
        await postgres.give_back(third)
        return row, first, second, third

    row, first, second, third = runner.run(lease_again())
    assert row == (False,)
    assert first == second != third


def reach(client: DockerClient, stack: ComposeStack, host: str, port: int) -> str:
    """What a connection from the Redis container to there comes to: what redis-cli says, or "" after 3 s of silence."""
    redis = stack._containers["redis"]
    argv = ["timeout", "3", "redis-cli", "-h", host, "-p", str(port), "PING"]
    return str(redis.exec_run(argv).output.decode()).strip()


def test_a_server_under_test_reaches_neither_toxiproxy_s_api_nor_the_processor_s_control_address(
    client: DockerClient, stack: ComposeStack
) -> None:
    assert reach(client, stack, "redis", 6379) == "PONG"
    assert "Connection refused" not in reach(client, stack, "processor", PORTS["A"])
    for service, port in (("toxiproxy", PORTS["toxiproxy"]), ("processor", PORTS["control"])):
        networks = client.containers.get(stack._containers[service].id).attrs["NetworkSettings"]["Networks"]
        assert len(networks) == 2
        for name, network in networks.items():
            answer = reach(client, stack, network["IPAddress"], port)
            assert answer == "" or "Connection refused" in answer or "timed out" in answer, (service, name)


def test_the_servers_processes_are_seen_where_the_engine_is_on_this_machine(stack: ComposeStack) -> None:
    pids = stack.server_pids()
    assert set(pids) in ({*SERVICES}, set())
