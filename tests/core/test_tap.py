"""The tap is not noticed until it is told to hold or lose a message, and then it does just that."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.relay import PING, echo, pong, relay, run, until
from harness.network.tap import Fate, Message

GET = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"


def cut(data: bytes, seed: int) -> list[bytes]:
    """data in random pieces."""
    dice, pieces = random.Random(seed), []
    while data:
        n = dice.choice((1, 2, 7, 50, 4096))
        pieces.append(data[:n])
        data = data[n:]
    return pieces


commands = st.lists(st.binary(max_size=60), min_size=1, max_size=4).map(
    lambda words: b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
)


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(("redis", "processor", "postgres", "other")),
    stream=st.lists(st.one_of(commands, st.binary(max_size=300)), max_size=6).map(b"".join),
    seed=st.integers(0, 2**32),
)
def test_what_goes_in_comes_out_whatever_it_is_and_however_it_is_cut(name: str, stream: bytes, seed: int) -> None:
    async def test() -> None:
        async with relay(name, echo) as relayed:
            reader, writer = await relayed.connect()
            for piece in cut(stream, seed):
                writer.write(piece)
                await asyncio.sleep(0)
            writer.write_eof()
            assert await reader.read() == stream
            for side in ("request", "reply"):
                assert b"".join(message.raw for message in relayed.passed if message.side == side) == stream
            writer.close()

    run(test())


def test_a_name_counts_over_all_connections_and_an_answer_has_its_questions_name() -> None:
    async def test() -> None:
        async with relay("redis", pong) as relayed:
            for _ in range(2):
                reader, writer = await relayed.connect()
                writer.write(PING + PING)
                assert await reader.readexactly(14) == b"+PONG\r\n" * 2
                writer.close()
            assert [b for b in relayed.boundaries if b.endswith("request")] == [
                f"redis.ping.{n}.request" for n in (1, 2, 3, 4)
            ]
            assert [b for b in relayed.boundaries if b.endswith("reply")] == [
                f"redis.ping.{n}.reply" for n in (1, 2, 3, 4)
            ]

    run(test())


def test_what_a_server_says_unasked_is_named_so() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"+hello\r\n>2\r\n+invalidate\r\n_\r\n")

    async def test() -> None:
        async with relay("redis", greet) as relayed:
            _, writer = await relayed.connect()
            await until(lambda: len(relayed.passed) == 2)
            assert relayed.boundaries == ["redis.unasked.1.reply", "redis.push.1.reply"]
            writer.close()

    run(test())


@pytest.mark.parametrize("side", ["request", "reply"])
def test_a_held_message_waits_with_all_behind_it_and_the_kernel_counts_its_bytes(side: str) -> None:
    async def test() -> None:
        async with relay("redis", pong) as relayed:
            release, held = asyncio.Event(), asyncio.Event()
            caught: list[Message] = []

            async def hold(message: Message) -> Fate:
                caught.append(message)
                held.set()
                await release.wait()
                return Fate.DELIVER

            boundary = f"redis.ping.2.{side}"
            relayed.link.interceptor = lambda message: hold if message.boundary == boundary else None
            reader, writer = await relayed.connect()
            writer.write(PING)
            assert await reader.readexactly(7) == b"+PONG\r\n"
            writer.write(PING + PING)
            await held.wait()
            (message,) = caught
            assert message.held_bytes() >= len(message.raw)
            assert f"redis.ping.3.{side}" not in relayed.boundaries
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.05)
            release.set()
            assert await reader.readexactly(14) == b"+PONG\r\n" * 2
            writer.close()

    run(test())


@pytest.mark.parametrize("side", ["request", "reply"])
def test_the_kernel_counts_the_bytes_of_a_held_message_exactly(side: str) -> None:
    async def test() -> None:
        async with relay("redis", pong) as relayed:
            release = asyncio.Event()
            caught: list[Message] = []

            async def hold(message: Message) -> Fate:
                caught.append(message)
                await release.wait()
                return Fate.DELIVER

            relayed.link.interceptor = lambda message: hold if message.side == side else None
            reader, writer = await relayed.connect()
            writer.write(PING)
            await until(lambda: bool(caught))
            assert caught[0].held_bytes() == len(caught[0].raw)
            release.set()
            assert await reader.readexactly(7) == b"+PONG\r\n"
            await until(lambda: caught[0].held_bytes() == 0)
            writer.close()

    run(test())


def test_a_held_request_does_not_hold_what_the_server_says() -> None:
    async def chatty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(PING))
        for _ in range(3):
            writer.write(b"+PONG\r\n")
            await writer.drain()
        await reader.read()

    async def test() -> None:
        async with relay("redis", chatty) as relayed:

            async def for_ever(_: Message) -> Fate:
                await asyncio.Event().wait()
                raise AssertionError

            relayed.link.interceptor = lambda message: for_ever if message.boundary == "redis.ping.2.request" else None
            reader, writer = await relayed.connect()
            writer.write(PING + PING)
            assert await reader.readexactly(21) == b"+PONG\r\n" * 3
            writer.close()

    run(test())


@pytest.mark.parametrize("fate", [Fate.DROP, Fate.RESET])
def test_a_lost_message_is_never_delivered_and_both_sides_see_the_end_it_was_given(fate: Fate) -> None:
    got = bytearray()
    ends: list[str] = []

    async def end_of(reader: asyncio.StreamReader) -> str:
        try:
            while data := await reader.read(100):
                got.extend(data)
        except ConnectionResetError:
            return "reset"
        return "closed"

    async def record(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        ends.append(await end_of(reader))

    async def test() -> None:
        async with relay("redis", record) as relayed:

            async def lose(_: Message) -> Fate:
                return fate

            relayed.link.interceptor = lambda message: lose if message.label == "get" else None
            reader, writer = await relayed.connect()
            writer.write(PING + GET + PING)
            expected = "reset" if fate is Fate.RESET else "closed"
            assert await end_of(reader) == expected
            await until(lambda: bool(ends))
            assert ends == [expected]
            assert bytes(got) in (PING, b"")  # a reset may overtake what was sent before it
            assert not relayed.link.connections
            writer.close()

    run(test())


def test_a_message_of_ten_megabytes_is_one_message() -> None:
    body = random.Random(8).randbytes(10_000_000)
    request = b"POST /v1/charges HTTP/1.1\r\nHost: p\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def test() -> None:
        async with relay("processor", echo) as relayed:
            reader, writer = await relayed.connect()
            writer.write(request)
            writer.write_eof()
            assert await reader.read() == request
            assert relayed.boundaries[0] == "processor.post-v1-charges.1.request"
            assert len(relayed.passed[0].raw) == len(request)
            writer.close()

    run(test())


def test_a_handler_that_fails_is_an_error_of_the_link_never_silence() -> None:
    async def test() -> None:
        async with relay("redis", pong) as relayed:

            async def broken(_: Message) -> Fate:
                raise RuntimeError("the fault's own bug")

            relayed.link.interceptor = lambda _: broken
            _, writer = await relayed.connect()
            writer.write(PING)
            await until(lambda: bool(relayed.link.errors))
            assert str(relayed.link.errors[0]) == "the fault's own bug"
            writer.close()

    run(test())
