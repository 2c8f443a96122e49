"""One direction of one connection: a reader, a chain of toxics, a writer (link.go).

    source > stub: noop > stub: latency > ... > destination

The chain always begins with a noop; a new toxic goes to its end. Changing the chain of a live connection interrupts the
toxics on either side of the change and starts them again, which is also when their dice are rolled again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fakes.toxiproxy.peer import Peer
from fakes.toxiproxy.stub import Channel, Chunk, Stub
from fakes.toxiproxy.toxics.noop import Noop
from fakes.toxiproxy.toxics.toxic import Setting, Stream

_GIVE_UP_S = 5.0
"""How long a removal waits for each chunk that the toxic before the removed one is stuck with; then it is dropped."""

_NOOP = Noop()


@dataclass(slots=True)
class _Station:
    """A stub and the toxic that is to run in it; setting is None for the noop at the head."""

    stub: Stub
    setting: Setting | None = None

    def run(self) -> None:
        self.stub.run(self.setting.roll(_NOOP).pipe if self.setting else _NOOP.pipe)


class Link:
    """ended: called once, when the destination has been closed."""

    def __init__(self, stream: Stream, source: Peer, destination: Peer, ended: Callable[[Link], None]) -> None:
        self.stream = stream
        self._source = source
        self._destination = destination
        self._ended = ended
        self._head = Channel()
        self._tail = Channel()
        self._chain = [_Station(Stub(self._head, self._tail))]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, settings: Iterable[Setting]) -> None:
        """Sets the connection going under these toxics."""
        for setting in settings:
            self._append(setting)
            if setting.toxic.RESETS:
                self._source.reset_when_closed()
                self._destination.reset_when_closed()
        for station in self._chain:
            station.run()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]

    def abandon(self) -> None:
        """Both ends of the connection are closed: nothing more can move."""
        for station in self._chain:
            station.stub.abandon()
        for task in self._tasks:
            task.cancel()

    async def add(self, setting: Setting) -> None:
        last = self._chain[-1]
        if await last.stub.interrupt():
            self._append(setting).run()
            last.run()

    async def update(self, setting: Setting) -> None:
        for station in self._chain:
            if station.setting is setting and await station.stub.interrupt():
                station.run()

    async def remove(self, setting: Setting) -> None:
        """Takes a toxic out: what it held, and what queued before it, goes on at once, or the stream closes."""
        place = next((n for n, station in enumerate(self._chain) if station.setting is setting), 0)
        stub, before = self._chain[place].stub, self._chain[place - 1]
        if not place or not await stub.interrupt():
            return
        if setting.toxic.CLOSES_WHEN_REMOVED:
            stub.close()
            return
        if await _drain(stub, before.stub):
            before.stub.outgoing = stub.outgoing
            del self._chain[place]
            before.run()

    def _append(self, setting: Setting) -> _Station:
        last = self._chain[-1].stub
        between = Channel(setting.toxic.BUFFER_CHUNKS)
        station = _Station(Stub(between, last.outgoing), setting)
        last.outgoing = between
        self._chain.append(station)
        return station

    async def _read(self) -> None:
        clock = asyncio.get_running_loop().time
        while data := await self._source.receive():
            await self._head.send(Chunk(data, clock()))
        self._head.close()

    async def _write(self) -> None:
        try:
            while chunk := await self._tail.receive():
                await self._destination.send(chunk.data)
        except OSError:
            pass  # The destination hung up: its own link notices when it reads.
        finally:
            self._destination.close()
            self._ended(self)


async def _drain(stub: Stub, before: Stub) -> bool:
    """Stops the toxic before a stopped one, passing on what it has for it. False: the stream ended while doing so."""
    stopping = asyncio.create_task(before.interrupt())
    while not (stopping.done() and stopping.result()):
        waits: set[asyncio.Future[Any]] = {stub.incoming.ready()}
        await asyncio.wait(waits if stopping.done() else waits | {stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not stub.incoming.waiting:
            continue
        chunk = stub.incoming.take()
        if chunk is None:
            stub.close()
            await stopping
            return False
        await stub.send(chunk, _GIVE_UP_S)
    while chunk := stub.incoming.take():
        await stub.send(chunk, _GIVE_UP_S)
    return True
