"""One connection of a worker, carried on to the server: messages are cut out of it, and handled in their order."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness import kernel
from harness.history import now_ns
from harness.network import http, pgwire, resp
from harness.network.framing import BYTES, Frame, Framer, Opaque, protocol_of
from harness.network.tap import Fate, Handler, Message

if TYPE_CHECKING:
    from harness.network.link import Link

FRAMERS: dict[str, Callable[[], tuple[Framer, Framer]]] = {
    "redis": resp.framers,
    "processor": http.framers,
    "postgres": pgwire.framers,
}
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class _Direction:
    """One direction of one connection: frames wait here while an earlier one is held."""

    side: str
    framer: Framer
    waiting: deque[Frame] = field(default_factory=deque)
    busy: bool = False
    ended: bool = False


class _Side(asyncio.Protocol):
    """The worker's or the server's half of a connection."""

    def __init__(self, connection: Connection, direction: _Direction) -> None:
        self.connection = connection
        self.direction = direction
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.connection.made(self)

    def data_received(self, data: bytes) -> None:
        self.connection.received(self.direction, data)

    def eof_received(self) -> bool:
        self.connection.ended(self.direction)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.connection.lost(self, exc)

    def pause_writing(self) -> None:
        self.connection.flow(self, paused=True)

    def resume_writing(self) -> None:
        self.connection.flow(self, paused=False)


class Connection:
    """One connection of a worker, and the one to the server that carries it on."""

    def __init__(self, link: Link) -> None:
        protocol = protocol_of(link.name)
        requests, replies = FRAMERS[protocol]() if protocol in FRAMERS else (Opaque(), Opaque())
        self.link = link
        self.requests = _Direction("request", requests)
        self.replies = _Direction("reply", replies)
        self.worker = _Side(self, self.requests)
        self.server = _Side(self, self.replies)
        self.unanswered: deque[tuple[str, int]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.upstream_port: int | None = None
        """Our own port on the connection to the server: how the server's account names this worker."""

    def made(self, side: _Side) -> None:
        if side is self.worker:
            self.link.connections.add(self)
            self.requests.busy = True  # nothing goes on before the server's side stands
            self._spawn(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            host, port = await self.link.upstream()
            transport, _ = await loop.create_connection(lambda: self.server, host, port)
        except OSError as error:
            self.link.upstream_refused(error)
            self.reset()
            return
        if self._closed:
            transport.abort()
            return
        self.upstream_port = transport.get_extra_info("sockname")[1]
        self.requests.busy = False
        self._pump(self.requests)

    def received(self, direction: _Direction, data: bytes) -> None:
        direction.waiting.extend(direction.framer.feed(data))
        self._pump(direction)

    def ended(self, direction: _Direction) -> None:
        if rest := direction.framer.rest():
            direction.waiting.append(Frame(BYTES if direction is self.requests else "", rest))
        direction.ended = True
        self._pump(direction)

    def _pump(self, direction: _Direction) -> None:
        link = self.link
        while direction.waiting and not direction.busy and not self._closed:
            message = self._message(direction, direction.waiting.popleft())
            link.on_message(message)
            handler = link.interceptor(message) if link.interceptor else None
            if handler is None:
                self._write(direction, message.raw)
            else:
                direction.busy = True
                message.counted = self.received_from(message.side), self.acked(message.side)
                self._spawn(self._intercept(direction, message, handler))
        if direction.ended and not direction.waiting and not direction.busy and not self._closed:
            target = self._target(direction)
            if target is not None and target.can_write_eof() and not target.is_closing():
                with contextlib.suppress(OSError):  # ENOTCONN: a reset came first; connection_lost() is next
                    target.write_eof()
            if all(way.ended and not way.waiting and not way.busy for way in (self.requests, self.replies)):
                self.close()

    def _message(self, direction: _Direction, frame: Frame) -> Message:
        if direction is self.requests:
            label, n = frame.label, self.link.count(frame.label)
            if not frame.info.get("silent"):
                self.unanswered.append((label, n))
        elif frame.label:
            label, n = frame.label, self.link.count(frame.label)
        elif self.unanswered:
            label, n = self.unanswered.popleft()
        else:
            label, n = "unasked", self.link.count("unasked")
        return Message(self.link.name, label, n, direction.side, frame.raw, frame.info, self, now_ns())

    async def _intercept(self, direction: _Direction, message: Message, handler: Handler) -> None:
        fate = await handler(message)
        if self._closed:
            return
        if fate is Fate.DELIVER:
            self._write(direction, message.raw)
            direction.busy = False
            self._pump(direction)
        elif fate is Fate.RESET:
            self.reset()
        else:
            self.close()

    def _target(self, direction: _Direction) -> asyncio.Transport | None:
        return (self.server if direction is self.requests else self.worker).transport

    def _write(self, direction: _Direction, data: bytes) -> None:
        target = self._target(direction)
        if target is not None and not target.is_closing():
            target.write(data)

    def flow(self, full: _Side, *, paused: bool) -> None:
        """Back-pressure: while one side cannot take more, the other is not read."""
        source = (self.worker if full is self.server else self.server).transport
        if source is not None and not source.is_closing():
            source.pause_reading() if paused else source.resume_reading()

    def lost(self, side: _Side, exc: Exception | None) -> None:
        if self._closed:
            return
        direction = side.direction
        if exc is not None and not direction.waiting and not direction.busy:
            self.reset()  # a reset on one side is a reset on the other
        elif not direction.ended:  # what was sent before the end still is on its way
            self.ended(direction)

    def received_from(self, side: str) -> int:
        """Bytes that the kernel has received from the sender of requests, or of replies, on this connection."""
        return _counts(self.worker if side == "request" else self.server)[1]

    def acked(self, side: str) -> int:
        """Bytes of requests, or of replies, that the receiver's kernel has acknowledged."""
        if side == "reply":
            return _counts(self.worker)[0]
        return max(0, _counts(self.server)[0] - 1)  # of a connection that we have opened the SYN counts as one byte

    def reset(self) -> None:
        """Both sides see a reset."""
        for side in (self.worker, self.server):
            if side.transport is not None:
                sock = side.transport.get_extra_info("socket")
                if sock is not None and sock.fileno() >= 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._shut(abort=True)

    def close(self) -> None:
        """Both sides see an orderly end."""
        self._shut(abort=False)

    def _shut(self, *, abort: bool) -> None:
        self._closed = True
        self.link.connections.discard(self)
        for side in (self.worker, self.server):
            if side.transport is not None:
                side.transport.abort() if abort else side.transport.close()
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.link.failed(error)


def _counts(side: _Side) -> tuple[int, int]:
    """The kernel's (acknowledged, received) of one half of a connection; zeros once it is closed."""
    sock = None if side.transport is None else side.transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return 0, 0
    return kernel.tcp_bytes(sock)
