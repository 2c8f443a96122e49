"""The toxics that lose bytes and end connections: timeout, reset_peer, limit_data."""

from __future__ import annotations

import asyncio

import pytest

from .bench import Bench
from .wires import PATIENCE_S, Clock, endings

both_directions = pytest.mark.parametrize("stream", ["upstream", "downstream"])


@both_directions
async def test_timeout_zero_drops_and_stays_open_until_it_is_removed(bench: Bench, stream: str) -> None:
    async with bench.link() as link:
        await link.add("timeout", stream, timeout=0)
        sender, receiver = await link.open_towards(stream)
        await sender.send(b"lost")
        await receiver.silent(0.3)
        await receiver.send(b"passes")
        assert await sender.receive(6) == b"passes"
        await link.remove("timeout")
        assert await endings(receiver, sender) == ["FIN", "FIN"]


@both_directions
async def test_timeout_closes_both_ends_after_so_long(bench: Bench, stream: str) -> None:
    async with bench.link() as link:
        await link.add("timeout", stream, timeout=400)
        clock = Clock()
        sender, receiver = await link.open_towards(stream)
        assert await endings(receiver, sender) == ["FIN", "FIN"]
        assert 0.4 <= clock.s < 0.4 + PATIENCE_S


async def test_each_chunk_starts_the_timeout_again(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("timeout", "upstream", timeout=2500)
        near, far = await link.open()
        for _ in range(4):
            await near.send(b"lost")
            await far.silent(0.7)
        clock = Clock()
        await near.send(b"lost")
        assert await far.ending() == "FIN"
        assert 2.5 <= clock.s < 2.5 + PATIENCE_S


async def test_timeout_drops_what_comes_on_connections_that_were_open_before(bench: Bench) -> None:
    async with bench.link() as link:
        near, far = await link.open()
        await near.send(b"a")
        await far.receive(1)
        await link.add("timeout", "upstream", timeout=0)
        await near.send(b"lost")
        await far.silent()
        await link.remove("timeout")
        assert await far.ending() == "FIN"


async def test_updating_timeout_closes_nothing_and_starts_the_clock_again(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("timeout", "upstream", timeout=0)
        _, far = await link.open()
        await far.silent()
        clock = Clock()
        await link.update("timeout", timeout=400)
        assert await far.ending() == "FIN"
        assert clock.s >= 0.4


async def test_removing_timeout_also_closes_connections_that_the_dice_spared(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("timeout", "upstream", toxicity=0.0, timeout=0)
        near, far = await link.open()
        await near.send(b"spared")
        assert await far.receive(6) == b"spared"
        await link.remove("timeout")
        assert await endings(far, near) == ["FIN", "FIN"]


async def test_the_end_of_a_stream_passes_a_timeout(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("timeout", "upstream", timeout=0)
        near, far = await link.open()
        await near.send(b"lost")
        near.close()
        assert await far.ending() == "FIN"


@both_directions
async def test_reset_peer_resets_both_ends_of_a_new_connection_at_its_first_bytes(bench: Bench, stream: str) -> None:
    async with bench.link() as link:
        await link.add("reset_peer", stream, timeout=0)
        sender, receiver = await link.open_towards(stream)
        await asyncio.gather(sender.silent(), receiver.silent())
        await sender.send(b"lost")
        assert await endings(receiver, sender) == ["RST", "RST"]


@both_directions
async def test_reset_peer_ends_a_connection_that_was_open_before_with_fin(bench: Bench, stream: str) -> None:
    async with bench.link() as link:
        sender, receiver = await link.open_towards(stream)
        await sender.send(b"before")
        await receiver.receive(6)
        await link.add("reset_peer", stream, timeout=0)
        await asyncio.gather(sender.silent(), receiver.silent())
        await sender.send(b"lost")
        assert await endings(receiver, sender) == ["FIN", "FIN"]


@both_directions
async def test_reset_peer_waits_its_timeout_from_the_first_bytes(bench: Bench, stream: str) -> None:
    async with bench.link() as link:
        await link.add("reset_peer", stream, timeout=400)
        sender, receiver = await link.open_towards(stream)
        await receiver.silent(0.5)
        clock = Clock()
        await sender.send(b"lost")
        assert await receiver.ending() == "RST"
        assert 0.4 <= clock.s < 0.4 + PATIENCE_S


@pytest.mark.parametrize(("chunks", "sender_sees"), [(3, "FIN"), (4, "RST")])
async def test_three_chunks_are_read_while_nothing_moves_on_and_a_fourth_makes_the_close_a_reset(
    bench: Bench, chunks: int, sender_sees: str
) -> None:
    """One in the toxic, one before it, one with the reader: the rest stays with the kernel, which resets for it."""
    async with bench.link() as link:
        near, far = await link.open()
        await link.add("reset_peer", "upstream", timeout=2000)
        for _ in range(chunks):
            await near.send(b"lost")
            await far.silent(0.2)
        assert await endings(far, near) == ["FIN", sender_sees]


async def test_removing_reset_peer_comes_too_late_once_bytes_have_met_it(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("reset_peer", "upstream", timeout=2000)
        near, far = await link.open()
        clock = Clock()
        await near.send(b"lost")
        await far.silent()
        await link.remove("reset_peer")
        assert clock.s >= 2.0, "removal was answered before the connection was reset"
        assert await far.ending() == "RST"


async def test_a_connection_that_met_no_bytes_survives_the_removal_of_reset_peer_but_still_ends_with_rst(
    bench: Bench,
) -> None:
    async with bench.link() as link:
        await link.add("reset_peer", "upstream", timeout=0)
        near, far = await link.open()
        await link.remove("reset_peer")
        await near.send(b"passes")
        assert await far.receive(6) == b"passes"
        near.close()
        assert await far.ending() == "RST"


async def test_a_connection_that_the_dice_spared_from_reset_peer_still_ends_with_rst(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("reset_peer", "upstream", toxicity=0.0, timeout=0)
        near, far = await link.open()
        await near.send(b"passes")
        assert await far.receive(6) == b"passes"
        near.close()
        assert await far.ending() == "RST"


@both_directions
async def test_limit_data_passes_so_many_bytes_and_closes(bench: Bench, stream: str) -> None:
    async with bench.link() as link:
        await link.add("limit_data", stream, bytes=10)
        sender, receiver = await link.open_towards(stream)
        await sender.send(b"0123")
        assert await receiver.receive(4) == b"0123"
        await receiver.silent()
        await sender.send(b"456789 and more")
        assert await receiver.receive(6) == b"456789"
        assert await receiver.ending() == "FIN"
        assert await sender.ending() == "FIN"


async def test_limit_data_closes_as_soon_as_the_limit_is_reached(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("limit_data", "upstream", bytes=4)
        near, far = await link.open()
        await near.send(b"four")
        assert await far.receive(4) == b"four"
        assert await far.ending() == "FIN"


async def test_limit_data_zero_closes_at_the_first_bytes(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("limit_data", "upstream", bytes=0)
        near, far = await link.open()
        await far.silent()
        await near.send(b"lost")
        assert await far.ending() == "FIN"


async def test_limit_data_counts_each_connection_by_itself(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("limit_data", "upstream", bytes=4)
        for _ in range(2):
            near, far = await link.open()
            await near.send(b"abc")
            assert await far.receive(3) == b"abc"
            await far.silent(0.05)


async def test_limit_data_goes_on_counting_when_it_is_updated(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("limit_data", "upstream", bytes=100)
        near, far = await link.open()
        await near.send(b"x" * 60)
        await far.receive(60)
        await link.update("limit_data", bytes=80)
        await near.send(b"x" * 60)
        assert await far.receive(20) == b"x" * 20
        assert await far.ending() == "FIN"


async def test_limit_data_counts_from_when_it_was_added(bench: Bench) -> None:
    async with bench.link() as link:
        near, far = await link.open()
        await near.send(b"x" * 60)
        await far.receive(60)
        await link.add("limit_data", "upstream", bytes=10)
        await near.send(b"y" * 60)
        assert await far.receive(10) == b"y" * 10
        assert await far.ending() == "FIN"


async def test_removing_limit_data_lifts_the_limit(bench: Bench) -> None:
    async with bench.link() as link:
        await link.add("limit_data", "upstream", bytes=4)
        near, far = await link.open()
        await near.send(b"abc")
        await far.receive(3)
        await link.remove("limit_data")
        await near.send(b"defghi")
        assert await far.receive(6) == b"defghi"
