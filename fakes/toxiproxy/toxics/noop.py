"""noop: passes everything on."""

from __future__ import annotations

from dataclasses import dataclass

from fakes.toxiproxy.stub import Stub
from fakes.toxiproxy.toxics.toxic import Toxic, register


@register("noop")
@dataclass(slots=True)
class Noop(Toxic):
    """Heads every chain, unseen, as something to interrupt; stands in where the dice spare a connection."""

    GO_NAME = "NoopToxic"

    async def pipe(self, stub: Stub) -> None:
        async for chunk in stub:
            await stub.send(chunk)
        stub.close()
