"""lost-acquire: the lock is granted, and the reply that says so is lost with the connection.

A client that sends the command again finds the lock taken, by itself. The worker is not told that it has it, does not
let it go, and waits, as everybody else does, until its own lease has run out.
"""

from __future__ import annotations

from harness.faults import Fault, register
from harness.faults._acquire import at_acquire, no_acquire
from harness.network.tap import Fate, Message
from harness.profile import Profile

REPLY = "reply"


@register
class LostAcquire(Fault):
    """The reply to A's first request for its lock is never delivered; both sides see a reset."""

    name = "lost-acquire"
    title = "the lock is granted to worker A, and the reply that says so is lost"
    recovers_from = "reset"

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        return no_acquire(profile)

    async def arm(self) -> None:
        at_acquire(self.bench, REPLY, self._lose)

    async def _lose(self, message: Message) -> Fate:
        bench = self.bench
        self._wanted, self._under_way = len(message.raw), message.held_bytes()
        bench.strike(boundary=message.boundary)
        bench.history.add("tap", "A", "dropped", boundary=message.boundary)
        bench.history.add("tap", "A", "reset", boundary=message.boundary)
        return Fate.RESET

    async def witness(self) -> None:
        bench = self.bench
        if not bench.struck.is_set():
            bench.not_landed(f"A never asked for its lock ({bench.profile.lock})")
            return
        left = bench.a_lease
        if self._under_way < self._wanted:
            bench.not_landed(f"the kernel counts {self._under_way} bytes under way, the reply has {self._wanted}")
        elif left is None or (left.gone_ns or bench.struck_ns) < bench.struck_ns:
            bench.not_landed("by Redis' account A did not hold the lock when the reply was lost")
        else:
            bench.landed("redis", f"the lock was A's, for {left.lease_ms or 0:.0f} ms, and A was not told")
