"""A link is to the worker what its server is: how connections end, are refused and slow down."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import socket
from typing import Any

import pytest

from core.relay import PING, Relayed, pong, relay, run, until
from harness.stack import free_port


def test_a_client_that_only_stops_sending_still_gets_its_answer() -> None:
    async def at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.read()
        writer.write(b"got %d" % len(asked))
        writer.close()

    async def test() -> None:
        async with relay("other", at_the_end) as relayed:
            reader, writer = await relayed.connect()
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
        async with relay("redis", slam) as relayed:
            reader, writer = await relayed.connect()
            writer.write(PING)
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.close()

    run(test())


def test_while_its_server_is_down_the_link_refuses_and_then_accepts_again() -> None:
    async def test() -> None:
        port = free_port()
        async with relay("redis", pong, port) as relayed:
            reader, writer = await relayed.connect()  # the kernel accepts before anybody can ask the server
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            await until(lambda: relayed.link._server is None)
            with pytest.raises(ConnectionRefusedError):
                await relayed.connect()
            revived = await asyncio.start_server(pong, "127.0.0.1", port)
            await until(lambda: relayed.link._server is not None)
            reader, writer = await relayed.connect()
            writer.write(PING)
            assert await reader.readexactly(7) == b"+PONG\r\n"
            writer.close()
            revived.close()
            await asyncio.sleep(0)

    run(test())


def test_refusing_lets_open_connections_live_and_keeps_the_port() -> None:
    async def test() -> None:
        async with relay("redis", pong) as relayed:
            reader, writer = await relayed.connect()
            writer.write(PING)
            assert await reader.readexactly(7) == b"+PONG\r\n"
            port = relayed.link.port
            relayed.link.refuse()
            with pytest.raises(ConnectionRefusedError):
                await relayed.connect()
            with socket.socket() as thief, pytest.raises(OSError, match="in use"):
                thief.bind(("127.0.0.1", port))
            writer.write(PING)
            assert await reader.readexactly(7) == b"+PONG\r\n"
            await relayed.link.accept_again()
            assert relayed.link.port == port
            reader, other = await relayed.connect()
            other.write(PING)
            assert await reader.readexactly(7) == b"+PONG\r\n"
            assert relayed.link.reset_all() == 2
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
        async with relay("other", late) as relayed:
            reader, writer = await relayed.connect()
            (connection,) = await _connections(relayed)
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


async def _connections(relayed: Relayed) -> list[Any]:
    await until(lambda: bool(relayed.link.connections))
    return list(relayed.link.connections)
