"""A link to a server of a few lines, and everything that passed on it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from harness.network.link import Link
from harness.network.tap import Message

PATIENCE_S = 30.0
"""How long anything may take on a machine that has other things to do."""

PING = b"*1\r\n$4\r\nPING\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Relayed:
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
async def relay(name: str, serve: Serve, port: int | None = None) -> AsyncIterator[Relayed]:
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

    relayed = Relayed(Link(name, "A", address, lambda message: relayed.passed.append(message)), upstream)
    await relayed.link.open()
    try:
        yield relayed
    finally:
        relayed.link.close()
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
