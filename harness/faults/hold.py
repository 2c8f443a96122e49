"""hold: one message is late, as a full buffer, a retransmission or a slow middlebox makes it; the worker is not."""

from __future__ import annotations

from harness.faults import register
from harness.faults._at_boundary import AtBoundary
from harness.network.tap import Fate, Message


@register
class Hold(AtBoundary):
    """A message of A's is held, and delivered when B is through or its attempts are over. A itself runs on."""

    name = "hold"
    title = "one message of worker A is held up in the network and delivered late"

    async def strike(self, message: Message) -> Fate:
        bench = self.bench
        self._message = message
        self._held_bytes = 0
        bench.strike(boundary=message.boundary)
        return await bench.hold_until_lifted(message)

    async def lift(self) -> None:
        if self.bench.struck.is_set():
            self._held_bytes = self._message.held_bytes()
        await super().lift()

    async def witness(self) -> None:
        if self.never_struck():
            return
        wanted = len(self._message.raw)
        if self._held_bytes >= wanted:
            self.bench.landed("kernel", f"{self._held_bytes} bytes had left one side and not reached the other")
        else:
            self.bench.not_landed(
                f"the kernel counts {self._held_bytes} bytes under way at the end, the message has {wanted}"
            )
