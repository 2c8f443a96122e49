"""limit_data: the connection closes after so many bytes."""

from __future__ import annotations

from dataclasses import dataclass

from fakes.toxiproxy.stub import Chunk, Stub
from fakes.toxiproxy.toxics.toxic import Toxic, register


@register("limit_data")
@dataclass(slots=True)
class LimitData(Toxic):
    """bytes: how many a connection may pass, counted from when it meets the toxic, updates or not."""

    GO_NAME = "LimitDataToxic"

    bytes: int = 0

    async def pipe(self, stub: Stub) -> None:
        async for chunk in stub:
            passed = chunk.data[: max(0, self.bytes - stub.state)]
            if passed:
                await stub.send(Chunk(passed, chunk.at_s))
                stub.state += len(passed)
            if stub.state >= self.bytes:
                break
        stub.close()
