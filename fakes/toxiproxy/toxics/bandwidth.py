"""bandwidth: no more than so many bytes a second."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fakes.toxiproxy.stub import Chunk, Interrupted, Stub
from fakes.toxiproxy.toxics.toxic import Toxic, register

_SLICE_MS = 100
_GIVE_UP_S = 5.0
"""After an interruption the rest of a chunk is sent at once, and dropped when nobody takes it for so long."""


@register("bandwidth")
@dataclass(slots=True)
class Bandwidth(Toxic):
    """rate: KB/s, that is bytes a millisecond. Rate 0 holds everything until the toxic is updated or removed."""

    GO_NAME = "BandwidthToxic"

    rate: int = 0

    async def pipe(self, stub: Stub) -> None:
        clock = asyncio.get_running_loop().time
        owed_s = 0.0
        async for chunk in stub:
            owed_s = owed_s + len(chunk.data) / self.rate / 1000 if self.rate > 0 else 0.0
            try:
                while len(chunk.data) > (size := max(0, self.rate) * _SLICE_MS):
                    await stub.sleep(_SLICE_MS / 1000)
                    if size:
                        await stub.send(Chunk(chunk.data[:size], chunk.at_s))
                    chunk.data = chunk.data[size:]
                    owed_s -= _SLICE_MS / 1000
                started_s = clock()
                await stub.sleep(owed_s)
            except Interrupted:
                await stub.send(chunk, _GIVE_UP_S)
                raise
            owed_s -= clock() - started_s
            await stub.send(chunk)
        stub.close()
