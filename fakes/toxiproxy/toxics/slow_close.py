"""slow_close: the connection closes later than its peer closed it."""

from __future__ import annotations

from dataclasses import dataclass

from fakes.toxiproxy.stub import Stub
from fakes.toxiproxy.toxics.toxic import Toxic, milliseconds, register


@register("slow_close")
@dataclass(slots=True)
class SlowClose(Toxic):
    """delay: ms between the end of the stream and the close. Removal closes at once."""

    GO_NAME = "SlowCloseToxic"

    delay: int = 0

    async def pipe(self, stub: Stub) -> None:
        async for chunk in stub:
            await stub.send(chunk)
        await stub.sleep(milliseconds(self.delay))
        stub.close()
