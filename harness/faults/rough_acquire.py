"""rough-acquire: the request for the lock, or the answer to it, is lost or late; then the charge is slow.

By itself a rough acquire shows nothing: a worker that goes on without its lock, or with one that has run out, is
through before anybody else asks. So A's charge, if it comes to one, is held until B is through.
"""

from __future__ import annotations

from harness.faults import Fault, register
from harness.faults._acquire import at_acquire, no_acquire
from harness.jobqueue import first_of
from harness.network.tap import Fate, Handler, Message
from harness.profile import Profile

REQUEST_LOST, REPLY_LOST, REQUEST_LATE, REPLY_LATE = "request-lost", "reply-lost", "request-late", "reply-late"
PLACES = (REQUEST_LOST, REPLY_LOST, REQUEST_LATE, REPLY_LATE)

REQUEST_LATE_LEASES = 1.2
"""Longer than a lease: what was computed from the time before it was sent has run out when it arrives."""
REPLY_LATE_LEASES = 0.5
"""Shorter than a lease: the lock stands when A learns of it, with half of it left."""


@register
class RoughAcquire(Fault):
    """A's first message that names the lock is lost with its connection, or held for a while."""

    name = "rough-acquire"
    title = "the request for the lock, or its answer, is lost or late, and the charge that follows is slow"

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        return no_acquire(profile)

    async def arm(self) -> None:
        bench = self.bench
        handlers: dict[str, tuple[str, Handler]] = {
            REQUEST_LOST: ("request", self._lose),
            REPLY_LOST: ("reply", self._lose),
            REQUEST_LATE: ("request", self._delay_request),
            REPLY_LATE: ("reply", self._delay_reply),
        }
        at_acquire(bench, *handlers[bench.spec.place])
        bench.at_boundary[f"{bench.profile.points['charge']}.request"] = bench.hold_until_lifted
        self._wanted = self._under_way = 0

    def _measure(self, message: Message) -> None:
        self._wanted, self._under_way = len(message.raw), message.held_bytes()

    async def _lose(self, message: Message) -> Fate:
        bench = self.bench
        self._measure(message)
        bench.strike(boundary=message.boundary)
        bench.history.add("tap", "A", "dropped", boundary=message.boundary)
        bench.history.add("tap", "A", "reset", boundary=message.boundary)
        return Fate.RESET

    async def _delay_request(self, message: Message) -> Fate:
        """Strikes when it is let go: B, which comes then, would be through otherwise before A has its lock."""
        await self._hold(message, REQUEST_LATE_LEASES)
        self.bench.strike(boundary=message.boundary)
        return Fate.DELIVER

    async def _delay_reply(self, message: Message) -> Fate:
        self.bench.strike(boundary=message.boundary)
        await self._hold(message, REPLY_LATE_LEASES)
        return Fate.DELIVER

    async def _hold(self, message: Message, leases: float) -> None:
        bench = self.bench
        bench.history.add("tap", "A", "held", boundary=message.boundary)
        await first_of(bench.lifted.wait(), timeout_s=leases * bench.lease_s)
        self._measure(message)
        bench.history.add("tap", "A", "let-go", boundary=message.boundary)

    async def witness(self) -> None:
        bench = self.bench
        if not bench.struck.is_set():
            bench.not_landed(f"A never asked for its lock ({bench.profile.lock})")
        elif self._under_way < self._wanted:
            bench.not_landed(f"the kernel counts {self._under_way} bytes under way, the message has {self._wanted}")
        else:
            bench.landed("kernel", f"{self._under_way} bytes had left one side and not reached the other")
