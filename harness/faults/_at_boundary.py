"""What the faults share that strike when one message of A's is under way: a boundary, and a hold on the message."""

from __future__ import annotations

from typing import ClassVar

from harness.bench import Bench
from harness.faults import HELD_LEASES, Fault, boundary_of
from harness.jobqueue import first_of
from harness.network.tap import Fate, Message
from harness.profile import Profile
from harness.verdict import STALL_FRACTION

_GOODBYE = "postgres.terminate."


class AtBoundary(Fault):
    """A fault that strikes when A's message crosses a boundary: the message is held while strike() runs."""

    boundary: str
    _too_late = False
    needs_a: ClassVar[bool] = False
    """It does something to A itself, which must not have ended before."""

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        boundary = boundary_of(profile, place)
        if boundary is None:
            return f"the baseline found no message of this subject that is its {place}"
        if cls.needs_a and boundary.startswith(_GOODBYE):
            return (
                "A does not wait for an answer to its goodbye to PostgreSQL: it may have ended before it can be stopped"
            )
        return None

    async def arm(self) -> None:
        bench = self.bench
        self.boundary = boundary_of(bench.profile, bench.spec.place) or bench.spec.place
        bench.at_boundary[self.boundary] = self._strike_once_a_is_known
        if self.boundary in bench.profile.held_boundaries:
            hold_charge(bench)

    async def _strike_once_a_is_known(self, message: Message) -> Fate:
        """A fast worker sends its first message before whoever forked it has told its pid."""
        await self.bench.a_known.wait()
        return Fate.DELIVER if self.is_over() else await self.strike(message)

    def is_over(self) -> bool:
        """Whether the fault has been lifted already: who strikes then would not be lifted any more."""
        self._too_late = bool(self.bench.history.select("fault-lifted"))
        return self._too_late

    async def strike(self, message: Message) -> Fate:
        """The message is here; what becomes of it is returned."""
        raise NotImplementedError

    def never_struck(self) -> bool:
        """Notes that A never got to the boundary."""
        if self.bench.struck.is_set():
            return False
        if self._too_late:
            self.bench.not_landed(f"A reached {self.boundary} only after the fault had been lifted")
            return True
        seen = [
            str(event.detail["boundary"])
            for event in self.bench.history
            if event.witness == "tap" and event.who == "A" and event.what in ("request", "reply")
        ]
        self.bench.not_landed(f"A never reached {self.boundary}; its messages were {', '.join(seen) or 'none'}")
        return True


def went_on(bench: Bench, stopped_ms: float, until_ms: float) -> str | None:
    """What A sent while it should have been stopped, or dead (until_ms infinite); None where it was silent.

    A process may leave A's tree for good (an orphan, where A has refused to adopt it), and no signal of ours reaches
    it. What was on its way already may be read by the tap later, but not a stall later.
    """
    since_ms = stopped_ms + STALL_FRACTION * bench.spec.ttl_ms
    for event in bench.history.select("request", who="A", witness="tap"):
        if since_ms < event.t_ms < until_ms:
            return (
                f"A sent {event.detail['boundary']} {event.t_ms - stopped_ms:.0f} ms after it was stopped: a process "
                "of its own has left its tree, where the harness does not reach it"
            )
    return None


def hold_charge(bench: Bench) -> None:
    """Holds A's charge request for as long as the fault stands: long enough for A's lease to be renewed.

    A request held at a crash is never delivered. Where the fault does not strike it is let go after 1.2 leases, as in
    the run that the renewals were learned from.
    """
    charge = f"{bench.profile.points['charge']}.request"

    async def hold(message: Message) -> Fate:
        bench.history.add("tap", "A", "held", boundary=message.boundary)
        await first_of(bench.struck.wait(), timeout_s=HELD_LEASES * bench.lease_s)
        if bench.struck.is_set():
            await bench.lifted.wait()
            if bench.spec.fault == "crash":
                bench.history.add("tap", "A", "dropped", boundary=message.boundary)
                return Fate.DROP
        bench.history.add("tap", "A", "let-go", boundary=message.boundary)
        return Fate.DELIVER

    bench.at_boundary.setdefault(charge, hold)
