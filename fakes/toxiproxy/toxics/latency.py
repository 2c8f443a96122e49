"""latency: everything arrives later."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from fakes.toxiproxy.stub import Interrupted, Stub
from fakes.toxiproxy.toxics.toxic import Toxic, milliseconds, register


@register("latency")
@dataclass(slots=True)
class Latency(Toxic):
    """latency: ms from the moment a chunk was read; jitter: up to so many ms more or less.

    Any change to the chain around it (removal, update, a toxic added behind it) sends the chunk it holds at once.
    """

    GO_NAME = "LatencyToxic"
    BUFFER_CHUNKS = 1024

    latency: int = 0
    jitter: int = 0

    async def pipe(self, stub: Stub) -> None:
        clock = asyncio.get_running_loop().time
        async for chunk in stub:
            delay_s = self._delay_s()
            wait_s = delay_s - (clock() - chunk.at_s)
            try:
                await stub.sleep(wait_s)
            except Interrupted:
                await stub.send(chunk)
                raise
            # The real server adds what it has slept, which is the delay but for the microseconds since the chunk was
            # read; here these are a millisecond, by which two delays in a row would be too short.
            chunk.at_s += delay_s
            await stub.send(chunk)
        stub.close()

    def _delay_s(self) -> float:
        jitter = random.randrange(-self.jitter, self.jitter) if self.jitter > 0 else 0
        return milliseconds(self.latency + jitter)
