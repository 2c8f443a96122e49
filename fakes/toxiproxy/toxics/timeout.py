"""timeout: nothing arrives any more, and after a while the connection closes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from fakes.toxiproxy.stub import Stub
from fakes.toxiproxy.toxics.toxic import Toxic, milliseconds, register


@register("timeout")
@dataclass(slots=True)
class Timeout(Toxic):
    """timeout: ms without a chunk (each one starts the clock again) until the close; 0 never closes.

    Removing it closes every connection of the stream, those that the dice spared included; what it dropped is lost.
    """

    GO_NAME = "TimeoutToxic"
    CLOSES_WHEN_REMOVED = True

    timeout: int = 0

    async def pipe(self, stub: Stub) -> None:
        silence_s = milliseconds(self.timeout)
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(silence_s if silence_s > 0 else None):
                    if await stub.receive() is None:
                        break
        stub.close()
