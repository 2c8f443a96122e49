"""reset_peer: the connection is reset instead of the first bytes arriving."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fakes.toxiproxy.stub import Stub
from fakes.toxiproxy.toxics.toxic import Toxic, milliseconds, register


@register("reset_peer")
@dataclass(slots=True)
class ResetPeer(Toxic):
    """timeout: ms from the first chunk, which is dropped, to the close; from then on removal comes too late.

    A connection that was open before the toxic was set closes the ordinary way (FIN).
    """

    GO_NAME = "ResetToxic"
    RESETS = True

    timeout: int = 0

    async def pipe(self, stub: Stub) -> None:
        await stub.receive()
        await asyncio.sleep(milliseconds(self.timeout))
        stub.close()
