"""One end of a proxied connection: a socket that can be closed while somebody waits for it, as Go's can."""

from __future__ import annotations

import asyncio
import socket
import struct

READ_SIZE = 32 * 1024
"""Bytes read at a time, as io.Copy does: so much and no more is taken from a peer whose bytes cannot move on."""


class Peer:
    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        # Go sets this on every TCP connection: a chunk must not wait for the acknowledgement of the one before.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._waiters: set[asyncio.Future[None]] = set()
        self.closed = False

    async def receive(self) -> bytes:
        """The next bytes; empty when there are no more, whichever way the connection ended."""
        while not self.closed:
            try:
                return self._sock.recv(READ_SIZE)
            except BlockingIOError:
                await self._readable()
            except OSError:
                break
        return b""

    async def send(self, data: bytes) -> None:
        """Raises OSError when the connection is gone."""
        rest = memoryview(data)
        while rest:
            if self.closed:
                raise ConnectionAbortedError("closed while sending")
            try:
                rest = rest[self._sock.send(rest) :]
            except BlockingIOError:
                await self._writable()

    def reset_when_closed(self) -> None:
        """close() will send RST and throw away what is not yet acknowledged (SO_LINGER with no time, socket(7))."""
        if not self.closed:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def close(self) -> None:
        """Closes both directions. The kernel still delivers what it has taken, unless unread bytes make it send RST."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        for waiter in self._waiters:
            _wake(waiter)

    async def _readable(self) -> None:
        waiter = self._new_waiter()
        self._loop.add_reader(self._sock, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            if not self.closed:
                self._loop.remove_reader(self._sock)

    async def _writable(self) -> None:
        waiter = self._new_waiter()
        self._loop.add_writer(self._sock, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            if not self.closed:
                self._loop.remove_writer(self._sock)

    def _new_waiter(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.add(waiter)
        return waiter


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
