"""The toxics that make things late: latency, bandwidth, slow_close."""

from __future__ import annotations

import asyncio

import pytest

from .bench import Bench
from .wires import PATIENCE_S, Clock, quickest

FOREVER_MS = 60_000
both_directions = pytest.mark.parametrize("stream", ["upstream", "downstream"])


@both_directions
async def test_latency_delays_its_direction_and_no_other(bench: Bench, stream: str) -> None:
    async def prompt_s() -> float:
        sender, receiver = await link.open_towards(stream)
        clock = Clock()
        await asyncio.gather(sender.send(b"late"), receiver.send(b"prompt"))
        assert await sender.receive(6) == b"prompt"
        took_s = clock.s
        assert await receiver.receive(4) == b"late"
        assert 0.6 <= clock.s < 0.6 + PATIENCE_S
        return took_s

    async with bench.link() as link:
        await link.add("latency", stream, latency=600, jitter=0)
        await quickest(prompt_s, below_s=0.5)


@both_directions
async def test_latency_counts_from_when_each_chunk_was_sent(bench: Bench, stream: str) -> None:
    async def both_s() -> float:
        sender, receiver = await link.open_towards(stream)
        clock = Clock()
        await sender.send(b"1")
        await asyncio.sleep(0.1)
        await sender.send(b"2")
        await receiver.receive(1)
        assert clock.s >= 1.0
        await receiver.receive(1)
        assert clock.s >= 1.1
        return clock.s

    async with bench.link() as link:
        await link.add("latency", stream, latency=1000, jitter=0)
        await quickest(both_s, below_s=1.9)  # 2 s when the second waits for the first one's latency as well


async def test_jitter_makes_delays_differ_within_its_bounds(bench: Bench) -> None:
    async def delay_s() -> float:
        near, far = await link.open()
        clock = Clock()
        await near.send(b"x")
        await far.receive(1)
        return clock.s

    async with bench.link() as link:
        await link.add("latency", "upstream", latency=200, jitter=150)
        delays_s = [await delay_s() for _ in range(8)]
    assert min(delays_s) >= 0.05
    assert max(delays_s) - min(delays_s) > 0.005


@both_directions
async def test_removing_latency_releases_everything_in_order(bench: Bench, stream: str) -> None:
    async with bench.link() as link:
        await link.add("latency", stream, latency=FOREVER_MS, jitter=0)
        sender, receiver = await link.open_towards(stream)
        for data in (b"one ", b"two ", b"three"):
            await sender.send(data)
            await receiver.silent(0.05)
        await link.remove("latency")
        assert await receiver.receive(13) == b"one two three"
        await sender.send(b"!")
        assert await receiver.receive(1) == b"!"


async def test_updating_latency_releases_the_chunk_it_holds_and_applies_to_the_next(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("latency", "upstream", latency=FOREVER_MS, jitter=0)
        near, far = await link.open()
        await near.send(b"held")
        await far.silent()
        await link.update("latency", latency=300)
        assert await far.receive(4) == b"held"
        clock = Clock()
        await near.send(b"next")
        await far.receive(4)
        assert 0.3 <= clock.s < 0.3 + PATIENCE_S


async def test_a_toxic_added_behind_latency_makes_it_release_the_chunk_it_holds(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("latency", "upstream", latency=FOREVER_MS, jitter=0)
        near, far = await link.open()
        await near.send(b"held")
        await far.silent()
        await link.add("noop", "upstream")
        assert await far.receive(4) == b"held"
        await near.send(b"next")
        await far.silent()


async def test_latency_applies_to_connections_that_were_open_before(bench: Bench) -> None:
    async with bench.link() as link:
        near, far = await link.open()
        await link.add("latency", "upstream", latency=300, jitter=0)
        clock = Clock()
        await near.send(b"x")
        await far.receive(1)
        assert clock.s >= 0.3


async def test_a_late_chunk_arrives_after_its_sender_has_gone(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("latency", "upstream", latency=400, jitter=0)
        near, far = await link.open()
        clock = Clock()
        await near.send(b"posthumous")
        near.close()
        assert await far.receive(10) == b"posthumous"
        assert clock.s >= 0.4
        assert await far.ending() == "FIN"


@pytest.mark.parametrize("latency_ms", [-1000, 9_223_372_036_855], ids=["negative", "more-than-292-years"])
async def test_latencies_that_are_no_time_at_all_in_go_delay_nothing(bench: Bench, latency_ms: int) -> None:
    async with bench.link() as link:
        await link.add("latency", "upstream", latency=latency_ms, jitter=0)
        near, far = await link.open()
        await near.send(b"x")
        assert await far.receive(1) == b"x"


@both_directions
async def test_bandwidth_lets_so_many_bytes_through_in_a_second(bench: Bench, stream: str) -> None:
    data = bytes(range(250)) * 60

    async def all_s() -> float:
        sender, receiver = await link.open_towards(stream)
        clock = Clock()
        await sender.send(data)
        assert await receiver.receive(1000) == data[:1000]
        assert clock.s >= 0.1
        assert await receiver.receive(14_000) == data[1000:]
        assert clock.s >= 1.5
        return clock.s

    async with bench.link() as link:
        await link.add("bandwidth", stream, rate=10)
        await quickest(all_s, below_s=2.5)


@both_directions
async def test_bandwidth_leaves_the_other_direction_alone(bench: Bench, stream: str) -> None:
    async with bench.link() as link:
        await link.add("bandwidth", stream, rate=0)
        sender, receiver = await link.open_towards(stream)
        await receiver.send(b"x" * 100_000)
        assert await sender.receive(100_000) == b"x" * 100_000


async def test_bandwidth_also_slows_many_small_chunks(bench: Bench) -> None:
    async def all_s() -> float:
        near, far = await link.open()
        clock = Clock()
        for _ in range(24):
            await near.send(b"x" * 50)
            await asyncio.sleep(0.055)  # a little more than 50 bytes take, so that each is a chunk of its own
        await far.receive(1200)
        assert clock.s >= 1.2
        return clock.s

    async with bench.link() as link:
        await link.add("bandwidth", "upstream", rate=1)
        await quickest(all_s, below_s=2.2)


@both_directions
async def test_bandwidth_zero_holds_and_removal_releases(bench: Bench, stream: str) -> None:
    async with bench.link() as link:
        await link.add("bandwidth", stream, rate=0)
        sender, receiver = await link.open_towards(stream)
        await sender.send(b"held")
        await receiver.silent(0.3)
        await sender.send(b" and queued")
        await receiver.silent()
        await link.remove("bandwidth")
        assert await receiver.receive(15) == b"held and queued"
        await receiver.send(b"alive")
        assert await sender.receive(5) == b"alive"


async def test_bandwidth_zero_holds_on_a_connection_that_was_open_before(bench: Bench) -> None:
    async with bench.link() as link:
        near, far = await link.open()
        await link.add("bandwidth", "upstream", rate=0)
        await near.send(b"held")
        await far.send(b"not held")
        assert await near.receive(8) == b"not held"
        await far.silent(0.3)
        await link.remove("bandwidth")
        assert await far.receive(4) == b"held"


async def test_updating_bandwidth_sends_the_chunk_it_holds_at_once(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("bandwidth", "upstream", rate=0)
        near, far = await link.open()
        await near.send(b"x" * 20_000)
        await far.silent()
        await link.update("bandwidth", rate=1)
        await far.receive(20_000, within_s=PATIENCE_S)  # at the new rate it would take 20 s


async def test_what_bandwidth_zero_holds_arrives_after_its_sender_has_gone(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("bandwidth", "upstream", rate=0)
        near, far = await link.open()
        await near.send(b"posthumous")
        near.close()
        await far.silent()
        await link.remove("bandwidth")
        assert await far.receive(10) == b"posthumous"
        assert await far.ending() == "FIN"


@both_directions
async def test_slow_close_delays_the_end_and_no_byte(bench: Bench, stream: str) -> None:
    async def prompt_s() -> float:
        sender, receiver = await link.open_towards(stream)
        clock = Clock()
        await sender.send(b"last words")
        sender.close()
        assert await receiver.receive(10) == b"last words"
        took_s = clock.s
        assert await receiver.ending() == "FIN"
        assert 0.6 <= clock.s < 0.6 + PATIENCE_S
        return took_s

    async with bench.link() as link:
        await link.add("slow_close", stream, delay=600)
        await quickest(prompt_s, below_s=0.5)


async def test_removing_slow_close_closes_at_once_what_was_waiting(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("slow_close", "upstream", delay=FOREVER_MS)
        near, far = await link.open()
        near.close()
        await far.silent()
        await link.remove("slow_close")
        assert await far.ending() == "FIN"


async def test_removing_slow_close_leaves_open_connections_open(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("slow_close", "upstream", delay=FOREVER_MS)
        near, far = await link.open()
        await link.remove("slow_close")
        await near.send(b"x")
        assert await far.receive(1) == b"x"
        near.close()
        assert await far.ending() == "FIN"
