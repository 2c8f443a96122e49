"""A toxic's place in one direction of one connection: chunks come in, the toxic acts, chunks go out.

As in Toxiproxy, a toxic that takes chunks and sleeps can be interrupted there, while one that hands a chunk on cannot:
what this does to bytes in flight when toxics come and go is what the conformance suite measures.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

_SPIN_S = 0.001
"""epoll waits whole milliseconds (epoll_wait(2)): shorter sleeps are spent looking at the clock."""


class Interrupted(Exception):
    """The toxic is being updated, removed or followed by a new one: it must let go of what it holds and return."""


@dataclass(slots=True)
class Chunk:
    """Bytes that were read together. at_s: when, on the event loop's clock."""

    data: bytes
    at_s: float


class Channel:
    """Go's channel for one sender and one receiver: send() waits while more than `capacity` chunks are untaken."""

    def __init__(self, capacity: int = 0) -> None:
        self._capacity = capacity
        self._chunks: deque[Chunk] = deque()
        self._closed = False
        self._receiver: asyncio.Future[None] | None = None
        self._sender: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> bool:
        """Whether take() has an answer now."""
        return bool(self._chunks) or self._closed

    async def send(self, chunk: Chunk) -> None:
        """Cancelled while it waits, it takes the chunk back."""
        self._chunks.append(chunk)
        _wake(self._receiver)
        try:
            while len(self._chunks) > self._capacity:
                self._sender = asyncio.get_running_loop().create_future()
                await self._sender
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._chunks.remove(chunk)
            raise

    def close(self) -> None:
        self._closed = True
        _wake(self._receiver)

    def ready(self) -> asyncio.Future[None]:
        """Done as soon as take() has an answer."""
        self._receiver = asyncio.get_running_loop().create_future()
        if self.waiting:
            self._receiver.set_result(None)
        return self._receiver

    def take(self) -> Chunk | None:
        """The next chunk, or None at the end of the stream, as often as asked. Call it when `waiting`."""
        if not self._chunks:
            return None
        chunk = self._chunks.popleft()
        _wake(self._sender)
        return chunk

    async def receive(self) -> Chunk | None:
        if not self.waiting:
            await self.ready()
        return self.take()


class Stub(AsyncIterator[Chunk]):
    """What a toxic's pipe() works with. state: for toxics that count something for each connection."""

    def __init__(self, incoming: Channel, outgoing: Channel) -> None:
        self.incoming = incoming
        self.outgoing = outgoing
        self.state = 0
        self.closed = False
        self._pipe: asyncio.Task[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._interrupting = False

    def run(self, pipe: Callable[[Stub], Awaitable[None]]) -> None:
        self._pipe = asyncio.create_task(self._run(pipe))

    async def interrupt(self) -> bool:
        """Stops the toxic that runs here, once it is where it can be stopped. False: the stream has ended here."""
        if self.closed or self._pipe is None:
            return False
        self._interrupting = True
        if self._waiter and not self._waiter.done():
            self._waiter.set_exception(Interrupted())
        await asyncio.wait([self._pipe])
        self._interrupting = False
        return not self.closed

    def close(self) -> None:
        """Ends the stream here: what has been handed on still arrives, then the connection closes."""
        self.closed = True
        self.outgoing.close()

    def abandon(self) -> None:
        """The connection is gone at both ends."""
        self.close()
        if self._pipe:
            self._pipe.cancel()

    async def receive(self) -> Chunk | None:
        """The next chunk, None at the end of the stream. Raises Interrupted."""
        if self._interrupting or not self.incoming.waiting:
            await self._interruptible(self.incoming.ready())
        return self.incoming.take()

    async def __anext__(self) -> Chunk:
        chunk = await self.receive()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def sleep(self, seconds: float) -> None:
        """Raises Interrupted."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + seconds
        if seconds >= _SPIN_S:
            waiter: asyncio.Future[None] = loop.create_future()
            timer = loop.call_at(deadline_s, _wake, waiter)
            try:
                await self._interruptible(waiter)
            finally:
                timer.cancel()
            return
        while not self._interrupting:
            await asyncio.sleep(0)
            if loop.time() >= deadline_s:
                return
        raise Interrupted

    async def send(self, chunk: Chunk, give_up_s: float | None = None) -> None:
        """Hands a chunk on; waits until it is taken, or drops it when that takes longer than give_up_s."""
        if give_up_s is None:
            await self.outgoing.send(chunk)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(give_up_s):
                await self.outgoing.send(chunk)

    async def _run(self, pipe: Callable[[Stub], Awaitable[None]]) -> None:
        with suppress(Interrupted):
            await pipe(self)

    async def _interruptible(self, waiter: asyncio.Future[None]) -> None:
        if self._interrupting:
            raise Interrupted
        self._waiter = waiter
        try:
            await waiter
        finally:
            self._waiter = None


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter and not waiter.done():
        waiter.set_result(None)
