"""lose: one message is lost and its connection reset, as a failing load balancer or a conntrack timeout does it."""

from __future__ import annotations

from harness.faults import register
from harness.faults._at_boundary import AtBoundary
from harness.network.tap import Fate, Message


@register
class Lose(AtBoundary):
    """A message of A's is never delivered and both sides see a reset. A lives."""

    name = "lose"
    title = "one message of worker A is lost and the connection reset"

    async def strike(self, message: Message) -> Fate:
        bench = self.bench
        self._wanted = len(message.raw)
        self._lost_bytes = message.held_bytes()
        bench.strike(boundary=message.boundary)
        bench.history.add("tap", "A", "dropped", boundary=message.boundary)
        bench.history.add("tap", "A", "reset", boundary=message.boundary)
        return Fate.RESET

    async def witness(self) -> None:
        if self.never_struck():
            return
        if self._lost_bytes >= self._wanted:
            self.bench.landed("kernel", f"{self._lost_bytes} bytes had left one side and not reached the other")
        else:
            self.bench.not_landed(
                f"the kernel counts {self._lost_bytes} bytes under way at the reset, the message has {self._wanted}"
            )
