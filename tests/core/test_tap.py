"""The tap is not noticed until it is told to hold, lose or refuse, and then it does just that."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.network.link import Link
from harness.network.tap import Fate, Message
from harness.stack import free_port

PATIENCE_S = 30.0
"""How long anything may take on a machine that has other things to do."""

PING = b"*1\r\n$4\r\nPING\r\n"
GET = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Bench:
    """A link, the server behind it, and everything that passed."""

    link: Link
    port: int
    passed: list[Message] = field(default_factory=list)

    @property
    def boundaries(self) -> list[str]:
        return [message.boundary for message in self.passed]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.link.port)


@contextlib.asynccontextmanager
async def relay(name: str, serve: Serve, port: int | None = None) -> AsyncIterator[Bench]:
    """A link called name to a server; with port: to that port, where nobody may listen."""
    writers = []

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)

    server = await asyncio.start_server(guarded, "127.0.0.1", 0)
    upstream = port or server.sockets[0].getsockname()[1]

    async def address() -> tuple[str, int]:
        return "127.0.0.1", upstream

    bench = Bench(Link(name, "A", address, lambda message: bench.passed.append(message)), upstream)
    await bench.link.open()
    try:
        yield bench
    finally:
        bench.link.close()
        server.close()
        for writer in writers:
            writer.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def pong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A Redis that says PONG to every command of 14 bytes."""
    while True:
        await reader.readexactly(len(PING))
        writer.write(b"+PONG\r\n")


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


async def until(condition: Callable[[], bool]) -> None:
    """Polls, until the test's patience is over."""
    while not condition():
        await asyncio.sleep(0.001)


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
        async with relay(name, echo) as bench:
            reader, writer = await bench.connect()
            for piece in cut(stream, seed):
                writer.write(piece)
                await asyncio.sleep(0)
            writer.write_eof()
            assert await reader.read() == stream
            for side in ("request", "reply"):
                assert b"".join(message.raw for message in bench.passed if message.side == side) == stream
            writer.close()

    run(test())


def test_a_name_counts_over_all_connections_and_an_answer_has_its_questions_name() -> None:
    async def test() -> None:
        async with relay("redis", pong) as bench:
            for _ in range(2):
                reader, writer = await bench.connect()
                writer.write(PING + PING)
                assert await reader.readexactly(14) == b"+PONG\r\n" * 2
                writer.close()
            assert [b for b in bench.boundaries if b.endswith("request")] == [
                f"redis.ping.{n}.request" for n in (1, 2, 3, 4)
            ]
            assert [b for b in bench.boundaries if b.endswith("reply")] == [
                f"redis.ping.{n}.reply" for n in (1, 2, 3, 4)
            ]

    run(test())


def test_what_a_server_says_unasked_is_named_so() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"+hello\r\n>2\r\n+invalidate\r\n_\r\n")

    async def test() -> None:
        async with relay("redis", greet) as bench:
            _, writer = await bench.connect()
            await until(lambda: len(bench.passed) == 2)
            assert bench.boundaries == ["redis.unasked.1.reply", "redis.push.1.reply"]
            writer.close()

    run(test())


@pytest.mark.parametrize("side", ["request", "reply"])
def test_a_held_message_waits_with_all_behind_it_and_the_kernel_counts_its_bytes(side: str) -> None:
    async def test() -> None:
        async with relay("redis", pong) as bench:
            release, held = asyncio.Event(), asyncio.Event()
            caught: list[Message] = []

            async def hold(message: Message) -> Fate:
                caught.append(message)
                held.set()
                await release.wait()
                return Fate.DELIVER

            boundary = f"redis.ping.2.{side}"
            bench.link.interceptor = lambda message: hold if message.boundary == boundary else None
            reader, writer = await bench.connect()
            writer.write(PING)
            assert await reader.readexactly(7) == b"+PONG\r\n"
            writer.write(PING + PING)
            await held.wait()
            (message,) = caught
            assert message.held_bytes() >= len(message.raw)
            assert f"redis.ping.3.{side}" not in bench.boundaries
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.05)
            release.set()
            assert await reader.readexactly(14) == b"+PONG\r\n" * 2
            writer.close()

    run(test())


@pytest.mark.parametrize("side", ["request", "reply"])
def test_the_kernel_counts_the_bytes_of_a_held_message_exactly(side: str) -> None:
    async def test() -> None:
        async with relay("redis", pong) as bench:
            release = asyncio.Event()
            caught: list[Message] = []

            async def hold(message: Message) -> Fate:
                caught.append(message)
                await release.wait()
                return Fate.DELIVER

            bench.link.interceptor = lambda message: hold if message.side == side else None
            reader, writer = await bench.connect()
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
        async with relay("redis", chatty) as bench:

            async def for_ever(_: Message) -> Fate:
                await asyncio.Event().wait()
                raise AssertionError

            bench.link.interceptor = lambda message: for_ever if message.boundary == "redis.ping.2.request" else None
            reader, writer = await bench.connect()
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
        async with relay("redis", record) as bench:

            async def lose(_: Message) -> Fate:
                return fate

            bench.link.interceptor = lambda message: lose if message.label == "get" else None
            reader, writer = await bench.connect()
            writer.write(PING + GET + PING)
            expected = "reset" if fate is Fate.RESET else "closed"
            assert await end_of(reader) == expected
            await until(lambda: bool(ends))
            assert ends == [expected]
            assert bytes(got) in (PING, b"")  # a reset may overtake what was sent before it
            assert not bench.link.connections
            writer.close()

    run(test())


def test_a_client_that_only_stops_sending_still_gets_its_answer() -> None:
    async def at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.read()
        writer.write(b"got %d" % len(asked))
        writer.close()

    async def test() -> None:
        async with relay("other", at_the_end) as bench:
            reader, writer = await bench.connect()
            writer.write(b"all of it")
            writer.write_eof()
            assert await reader.read() == b"got 9"
            writer.close()

    run(test())


def test_a_server_that_resets_resets_the_worker() -> None:
    async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async def test() -> None:
        async with relay("redis", slam) as bench:
            reader, writer = await bench.connect()
            writer.write(PING)
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.close()

    run(test())


def test_while_its_server_is_down_the_link_refuses_and_then_accepts_again() -> None:
    async def test() -> None:
        port = free_port()
        async with relay("redis", pong, port) as bench:
            reader, writer = await bench.connect()  # the kernel accepts before anybody can ask the server
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            await until(lambda: bench.link._server is None)
            with pytest.raises(ConnectionRefusedError):
                await bench.connect()
            revived = await asyncio.start_server(pong, "127.0.0.1", port)
            await until(lambda: bench.link._server is not None)
            reader, writer = await bench.connect()
            writer.write(PING)
            assert await reader.readexactly(7) == b"+PONG\r\n"
            writer.close()
            revived.close()
            await asyncio.sleep(0)

    run(test())


def test_refusing_lets_open_connections_live_and_keeps_the_port() -> None:
    async def test() -> None:
        async with relay("redis", pong) as bench:
            reader, writer = await bench.connect()
            writer.write(PING)
            assert await reader.readexactly(7) == b"+PONG\r\n"
            port = bench.link.port
            bench.link.refuse()
            with pytest.raises(ConnectionRefusedError):
                await bench.connect()
            with socket.socket() as thief, pytest.raises(OSError, match="in use"):
                thief.bind(("127.0.0.1", port))
            writer.write(PING)
            assert await reader.readexactly(7) == b"+PONG\r\n"
            await bench.link.accept_again()
            assert bench.link.port == port
            reader, other = await bench.connect()
            other.write(PING)
            assert await reader.readexactly(7) == b"+PONG\r\n"
            assert bench.link.reset_all() == 2
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.close()
            other.close()

    run(test())


def test_a_slow_reader_slows_the_writer_down_instead_of_filling_the_harness() -> None:
    blob = random.Random(7).randbytes(10_000_000)
    go = asyncio.Event()
    got = bytearray()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        while data := await reader.read(1 << 18):
            got.extend(data)
        writer.write(b"done")
        writer.close()

    async def test() -> None:
        async with relay("other", late) as bench:
            reader, writer = await bench.connect()
            (connection,) = await _connections(bench)
            for side in (connection.worker, connection.server):  # or the kernel alone takes more than the 10 MB
                await until(functools.partial(_connected, side))
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    side.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, 1 << 16)
            writer.write(blob)
            buffered: list[int] = []

            def full() -> bool:  # nothing has moved for a while, and the writer is not through
                transport = connection.server.transport
                buffered.append(-1 if transport is None else transport.get_write_buffer_size())
                return len(buffered) > 100 and buffered[-1] > 0 and len(set(buffered[-100:])) == 1

            await until(full)
            assert max(buffered) < 3_000_000
            assert writer.transport.get_write_buffer_size() > 1_000_000
            go.set()
            writer.write_eof()
            assert await reader.read() == b"done"
            assert bytes(got) == blob
            writer.close()

    run(test())


def _connected(side: Any) -> bool:
    return side.transport is not None


async def _connections(bench: Bench) -> list[Any]:
    await until(lambda: bool(bench.link.connections))
    return list(bench.link.connections)


def test_a_message_of_ten_megabytes_is_one_message() -> None:
    body = random.Random(8).randbytes(10_000_000)
    request = b"POST /v1/charges HTTP/1.1\r\nHost: p\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def test() -> None:
        async with relay("processor", echo) as bench:
            reader, writer = await bench.connect()
            writer.write(request)
            writer.write_eof()
            assert await reader.read() == request
            assert bench.boundaries[0] == "processor.post-v1-charges.1.request"
            assert len(bench.passed[0].raw) == len(request)
            writer.close()

    run(test())


def test_a_handler_that_fails_is_an_error_of_the_link_never_silence() -> None:
    async def test() -> None:
        async with relay("redis", pong) as bench:

            async def broken(_: Message) -> Fate:
                raise RuntimeError("the fault's own bug")

            bench.link.interceptor = lambda _: broken
            _, writer = await bench.connect()
            writer.write(PING)
            await until(lambda: bool(bench.link.errors))
            assert str(bench.link.errors[0]) == "the fault's own bug"
            writer.close()

    run(test())
