"""What becomes of connections: toxicity, enabled, updates, deletion, ends of every kind, bytes in bulk."""

from __future__ import annotations

import asyncio
import hashlib
import random

import pytest

from .bench import Bench, Link
from .wires import MOMENT_S, PATIENCE_S, Clock, Upstream, Wire, dial, endings

FOREVER_MS = 60_000


async def spared(link: Link) -> bool:
    """Whether a new connection gets through: each byte of it or none."""
    near, far = await link.open()
    await near.send(b"1")
    try:
        await far.receive(1, 2.5)
    except TimeoutError:
        return False
    for _ in range(3):
        await near.send(b"2")
        assert await far.receive(1) == b"2", "the dice were rolled again within one connection"
    return True


@pytest.mark.parametrize(("toxicity", "at_least", "at_most"), [(0.0, 40, 40), (1.0, 0, 0), (0.5, 7, 33)])
async def test_toxicity_is_rolled_once_for_each_connection(
    bench: Bench, toxicity: float, at_least: int, at_most: int
) -> None:
    """Half and half: 7 to 33 of 40 leaves out what a fair coin does less than once in 40,000 runs."""
    async with bench.link() as link:
        await link.add("latency", "upstream", toxicity, latency=FOREVER_MS, jitter=0)
        passed = sum([await result for result in asyncio.as_completed([spared(link) for _ in range(40)])])
    assert at_least <= passed <= at_most


async def test_toxicity_is_rolled_again_on_live_connections_when_it_is_updated(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("latency", "upstream", 0.0, latency=FOREVER_MS, jitter=0)
        near, far = await link.open()
        await near.send(b"spared")
        await far.receive(6)
        await link.update("latency", toxicity=1.0)
        await near.send(b"held")
        await far.silent()
        await link.update("latency", toxicity=0.0)
        assert await far.receive(4) == b"held"


async def test_a_disabled_proxy_refuses_and_drops(bench: Bench) -> None:
    async with bench.link() as link:
        near, far = await link.open()
        await link.enable(False)
        assert await endings(near, far) == ["FIN", "FIN"]
        with pytest.raises(ConnectionRefusedError):
            await dial(link.listen)
        await link.enable(True)
        near, far = await link.open()
        await near.send(b"x")
        assert await far.receive(1) == b"x"


async def test_disabling_drops_what_a_toxic_holds(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("latency", "upstream", latency=FOREVER_MS, jitter=0)
        near, far = await link.open()
        await near.send(b"lost")
        await far.silent()
        await link.enable(False)
        assert await far.ending() == "FIN"


async def test_toxics_survive_disabling(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("latency", "upstream", latency=300, jitter=0)
        await link.enable(False)
        await link.enable(True)
        near, far = await link.open()
        clock = Clock()
        await near.send(b"x")
        await far.receive(1)
        assert clock.s >= 0.3


async def test_enabling_an_enabled_proxy_leaves_its_connections_alone(bench: Bench) -> None:
    async with bench.link() as link:
        near, far = await link.open()
        await link.enable(True)
        await near.send(b"x")
        assert await far.receive(1) == b"x"


async def test_a_proxy_created_disabled_listens_once_it_is_enabled(bench: Bench) -> None:
    async with bench.link(enabled=False) as link:
        assert link.listen == "127.0.0.1:0"
        await link.add("bandwidth", "upstream", rate=0)
        await link.enable(True)
        link.listen = (await link.call("GET")).json["listen"]
        near, far = await link.open()
        await near.send(b"held from the first byte")
        await far.silent()


async def test_a_deleted_proxy_refuses_and_drops(bench: Bench) -> None:
    async with bench.link() as link:
        near, far = await link.open()
        assert (await link.call("DELETE")).status == 204
        assert await endings(near, far) == ["FIN", "FIN"]
        with pytest.raises(ConnectionRefusedError):
            await dial(link.listen)


async def test_another_upstream_drops_the_connections_and_serves_the_next(bench: Bench) -> None:
    async with bench.link() as link:
        near, _ = await link.open()
        link.upstream.close()
        link.upstream = Upstream()
        answer = await link.call("PATCH", "", {"upstream": link.upstream.address})
        assert answer.json["listen"] == link.listen
        assert await near.ending() == "FIN"
        near, far = await link.open()
        await near.send(b"x")
        assert await far.receive(1) == b"x"
        link.upstream.close()


async def test_port_zero_moves_the_proxy_to_another_port(bench: Bench) -> None:
    async with bench.link() as link:
        near, _ = await link.open()
        moved = (await link.call("PATCH", "", {"listen": "127.0.0.1:0"})).json["listen"]
        assert moved != "127.0.0.1:0"
        assert await near.ending() == "FIN"
        link.listen = moved
        await link.open()


async def test_an_upstream_that_refuses_ends_the_clients_connection_and_spoils_nothing_for_the_next(
    bench: Bench,
) -> None:
    async with bench.link() as link:
        link.upstream.close()
        link.upstream = Upstream(listening=False)
        await link.call("PATCH", "", {"upstream": link.upstream.address})
        for _ in range(2):
            near = await dial(link.listen)
            assert await near.ending() == "FIN"
            near.close()
        link.upstream.listen()
        near, far = await link.open()
        await near.send(b"x")
        assert await far.receive(1) == b"x"
        link.upstream.close()


@pytest.mark.parametrize("upstream", ["nonsense", "127.0.0.1:nonsense", "[", ":"])
async def test_an_upstream_that_is_no_address_is_accepted_and_never_reached(bench: Bench, upstream: str) -> None:
    async with bench.link() as link:
        assert (await link.call("PATCH", "", {"upstream": upstream})).json["upstream"] == upstream
        near = await dial(link.listen)
        assert await near.ending() == "FIN"
        near.close()


async def test_an_upstream_may_be_a_name(bench: Bench) -> None:
    async with bench.link() as link:
        port = link.upstream.address.rpartition(":")[2]
        await link.call("PATCH", "", {"upstream": f"localhost:{port}"})
        near, far = await link.open()
        await near.send(b"x")
        assert await far.receive(1) == b"x"


async def test_half_a_close_is_a_whole_one(bench: Bench) -> None:
    """A client that ends its half of the connection gets no answer any more."""
    async with bench.link() as link:
        near, far = await link.open()
        near.sock.shutdown(1)
        assert await far.ending() == "FIN"
        assert await near.ending() == "FIN"


async def test_a_reset_arrives_as_an_ordinary_end(bench: Bench) -> None:
    async with bench.link() as link:
        near, far = await link.open()
        near.reset()
        assert await far.ending() == "FIN"


async def test_bytes_in_bulk_arrive_unchanged_in_both_directions_at_once(bench: Bench) -> None:
    data = random.Random(1).randbytes(3_000_000)
    async with bench.link() as link:
        near, far = await link.open()
        received = await asyncio.gather(
            near.receive(len(data)), far.receive(len(data)), near.send(data), far.send(data[::-1])
        )
    assert hashlib.sha256(received[0]).digest() == hashlib.sha256(data[::-1]).digest()
    assert hashlib.sha256(received[1]).digest() == hashlib.sha256(data).digest()


async def test_a_chain_of_every_harmless_toxic_loses_no_byte_while_it_changes(bench: Bench) -> None:
    async def changes() -> None:
        for _ in range(2):
            await link.add("latency", "upstream", latency=5, jitter=5)
            await link.add("slicer", "upstream", average_size=4000, size_variation=100, delay=100)
            await link.update("latency", latency=1)
            await link.add("bandwidth", "upstream", rate=20_000)
            await link.remove("latency")
            await link.add("slow_close", "upstream", delay=1)
            await link.remove("slicer")
            await link.remove("bandwidth")
            await link.remove("slow_close")

    data = random.Random(2).randbytes(2_000_000)
    async with bench.link() as link:
        near, far = await link.open()
        receiving = asyncio.create_task(far.receive(len(data), 6 * PATIENCE_S))
        changing = asyncio.create_task(changes())
        for start in range(0, len(data), 20_000):
            await near.send(data[start : start + 20_000])
        await changing
        assert hashlib.sha256(await receiving).digest() == hashlib.sha256(data).digest()


async def test_a_change_waits_for_a_connection_whose_client_does_not_read(bench: Bench) -> None:
    async with bench.link() as link:
        near, far = await link.open(receive_buffer=32_768)
        sent = 0
        try:
            while True:
                await asyncio.wait_for(far.send(b"x" * 65_536), 1.0)
                sent += 65_536
        except TimeoutError:
            pass
        adding = asyncio.create_task(link.call("POST", "/toxics", {"type": "latency"}))
        done, _ = await asyncio.wait({adding}, timeout=2 * MOMENT_S)
        assert not done, "answered before every connection had the toxic"
        await near.receive(sent, 3 * PATIENCE_S)
        assert (await adding).status == 200


async def test_many_connections_at_once_each_get_their_own_bytes(bench: Bench) -> None:
    async def exchange(number: int) -> None:
        near = await dial(link.listen)
        link.wires.append(near)
        await near.send(b"%4d" % number)
        assert await near.receive(4) == b"%4d" % number

    async def echo(far: Wire) -> None:
        link.wires.append(far)
        await far.send(await far.receive(4))

    async def serve() -> None:
        await asyncio.gather(*[asyncio.create_task(echo(await link.upstream.accept())) for _ in range(100)])

    async with bench.link() as link:
        await asyncio.gather(serve(), *(exchange(number) for number in range(100)))
