"""The toxic that cuts bytes up, and toxics in a chain."""

from __future__ import annotations

import asyncio

import pytest

from .bench import Bench
from .wires import MOMENT_S, PATIENCE_S, Clock, quickest

FOREVER_MS = 60_000
both_directions = pytest.mark.parametrize("stream", ["upstream", "downstream"])


@both_directions
async def test_slicer_cuts_a_chunk_into_pieces_with_a_pause_after_each(bench: Bench, stream: str) -> None:
    async with bench.link() as link:
        await link.add("slicer", stream, average_size=100, size_variation=0, delay=30_000)
        sender, receiver = await link.open_towards(stream)
        data = bytes(range(200)) * 4
        clock = Clock()
        await sender.send(data)
        pieces: list[bytes] = []
        while len(b"".join(pieces)) < len(data):
            pieces.append(await receiver.piece())
        assert b"".join(pieces) == data
        assert clock.s >= 7 * 0.03, "eight pieces, a pause after each"
        assert len(pieces) > 1


async def test_slicer_varies_the_size_of_the_pieces(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("slicer", "upstream", average_size=100, size_variation=50, delay=20_000)
        near, far = await link.open()
        data = bytes(range(250)) * 8
        await near.send(data)
        pieces: list[bytes] = []
        while len(b"".join(pieces)) < len(data):
            pieces.append(await far.piece())
        assert b"".join(pieces) == data
        assert len({len(piece) for piece in pieces[:-1]}) > 2


async def test_removing_slicer_sends_the_rest_of_the_chunk_at_once(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("slicer", "upstream", average_size=1, size_variation=0, delay=FOREVER_MS * 1000)
        near, far = await link.open()
        await near.send(b"sliced")
        assert await far.receive(1) == b"s"
        await far.silent()
        await link.remove("slicer")
        assert await far.receive(5) == b"liced"


async def test_two_delays_in_a_chain_add_up(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("latency", "upstream", latency=250, jitter=0)
        await link.call(
            "POST", "/toxics", {"name": "more", "type": "latency", "stream": "upstream", "attributes": {"latency": 250}}
        )
        near, far = await link.open()
        clock = Clock()
        await near.send(b"x")
        await far.receive(1)
        assert 0.5 <= clock.s < 0.5 + PATIENCE_S


@pytest.mark.parametrize(
    ("first", "then", "end_is_slow"), [("limit_data", "slow_close", True), ("slow_close", "limit_data", False)]
)
async def test_toxics_act_in_the_order_they_were_added(bench: Bench, first: str, then: str, end_is_slow: bool) -> None:
    async def end_s() -> float:
        near, far = await link.open()
        clock = Clock()
        await near.send(b"four")
        assert await far.receive(4) == b"four"
        assert await far.ending() == "FIN"
        return clock.s

    attributes = {"limit_data": {"bytes": 4}, "slow_close": {"delay": 1000}}
    async with bench.link() as link:
        await link.add(first, "upstream", **attributes[first])
        await link.add(then, "upstream", **attributes[then])
        if end_is_slow:
            assert await end_s() >= 1.0
        else:
            await quickest(end_s, below_s=0.9)


async def test_removing_the_first_of_two_toxics_hands_what_it_held_to_the_second(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("bandwidth", "upstream", rate=0)
        await link.add("latency", "upstream", latency=400, jitter=0)
        near, far = await link.open()
        clock = Clock()
        await near.send(b"x")
        await asyncio.sleep(MOMENT_S)
        await link.remove("bandwidth")
        await far.receive(1)
        assert 0.4 <= clock.s < 0.4 + PATIENCE_S
