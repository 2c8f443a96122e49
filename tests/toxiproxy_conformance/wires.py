"""Both ends of a connection through a proxy, to see what arrives, when, and how it ends."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Literal

PATIENCE_S = 10.0
"""How long what must happen may take on a busy machine."""

MOMENT_S = 0.15
"""How long it is watched that something does not happen. Too short can only make a wrong server pass, never fail."""

_READ_SIZE = 1 << 16

Ending = Literal["FIN", "RST"]


class Wire:
    """One end. Times are seconds of time.monotonic()."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await asyncio.wait_for(self._loop.sock_sendall(self.sock, data), PATIENCE_S)

    async def piece(self, within_s: float = PATIENCE_S) -> bytes:
        """Whatever comes next; b"" is the end. Raises ConnectionResetError, TimeoutError."""
        return await asyncio.wait_for(self._loop.sock_recv(self.sock, _READ_SIZE), within_s)

    async def receive(self, size: int, within_s: float = PATIENCE_S) -> bytes:
        """Exactly so many bytes. Raises EOFError when the connection ends before, TimeoutError."""
        received = bytearray()
        async with asyncio.timeout(within_s):
            while len(received) < size:
                data = await self._loop.sock_recv(self.sock, min(_READ_SIZE, size - len(received)))
                if not data:
                    raise EOFError(f"{len(received)} of {size} bytes, then the end")
                received += data
        return bytes(received)

    async def ending(self, within_s: float = PATIENCE_S) -> Ending:
        """How the connection ends, which it must do with no byte before. Raises TimeoutError."""
        try:
            data = await self.piece(within_s)
        except ConnectionResetError:
            return "RST"
        assert data == b"", f"{data!r} instead of the end"
        return "FIN"

    async def silent(self, for_s: float = MOMENT_S) -> None:
        """Nothing arrives, and the connection does not end either."""
        try:
            data = await self.piece(for_s)
        except TimeoutError:
            return
        raise AssertionError(f"{data!r} arrived")

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


async def endings(*wires: Wire) -> list[Ending]:
    """How each of these connections ends."""
    return list(await asyncio.gather(*(wire.ending() for wire in wires)))


class Upstream:
    """A server that hands its end of each connection to the test.

    Not listening, it refuses: its port stays its own all the same, and no neighbour gets it meanwhile.
    """

    def __init__(self, *, listening: bool = True) -> None:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        if listening:
            self.listen()

    def listen(self) -> None:
        self._listener.listen(256)

    async def accept(self) -> Wire:
        sock, _ = await asyncio.wait_for(asyncio.get_running_loop().sock_accept(self._listener), PATIENCE_S)
        return Wire(sock)

    def close(self) -> None:
        self._listener.close()


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()

    @property
    def s(self) -> float:
        return time.monotonic() - self._started_s


async def quickest(trial: Callable[[], Awaitable[float]], below_s: float) -> None:
    """One trial of three takes less than so many seconds: a busy machine makes things late, never early."""
    took_s = []
    for _ in range(3):
        took_s.append(await trial())
        if took_s[-1] < below_s:
            return
    raise AssertionError(f"took {took_s} s, never less than {below_s}")


async def dial(address: str, receive_buffer: int | None = None) -> Wire:
    """A connection to HOST:PORT. Raises ConnectionRefusedError."""
    host, port = address.rsplit(":", 1)
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(sock, (host, int(port))), PATIENCE_S)
    except OSError:
        sock.close()
        raise
    return Wire(sock)
