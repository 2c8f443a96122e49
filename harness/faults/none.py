"""none: nothing goes wrong. The baseline of every subject: A, B, C, and exactly one charge."""

from __future__ import annotations

import asyncio

from harness.faults import Fault, register
from harness.network.tap import Fate, Message
from harness.verdict import NO_FAULT


@register
class NoFault(Fault):
    """No fault. What is learned of a subject is learned here (harness/baseline.py)."""

    name = NO_FAULT
    title = "nothing goes wrong"

    async def arm(self) -> None:
        self.bench.on_message.append(self._watch)
        self.bench.at_boundary["processor.post-v1-charges.1.request"] = self._pause

    def _watch(self, worker: str, message: Message) -> None:
        if worker == "A" and self.bench.charge_left.is_set() and not self.bench.struck.is_set():
            self.bench.strike()

    async def _pause(self, _: Message) -> Fate:
        """A tenth of a lease, so that there is time to see who holds what while A is charging."""
        await asyncio.sleep(self.bench.lease_s / 10)
        return Fate.DELIVER

    async def witness(self) -> None:
        self.bench.landed("queue", "nothing was to go wrong")
