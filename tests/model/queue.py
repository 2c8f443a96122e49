"""The harness as the job queue, from the design's words: A, B again and again while the fault stands, C; the money."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .assumptions import DEFAULT, Assumptions
from .faults import Fault
from .machine import Process, Side
from .programs import Delivery, Design
from .servers import LOCK
from .world import World

TICK = 0.01
"""How often the queue looks, in leases."""
AT_MOST = 12
"""Leases a fault may stand, and leases C is delivered for."""
UNRENEWED = 3
"""Leases the fault stands where A's lease does not run out."""
OPEN_END = 60

EXACTLY_ONE, DOUBLE_CHARGE, NO_CHARGE = "exactly-one", "double-charge", "no-charge"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one experiment came to. Times are in leases since A was delivered."""

    verdict: str
    landed: bool
    contended: bool
    messages: tuple[tuple[str, str, int, Side], ...]
    """A's messages in order."""
    struck: float | None
    granted_next: float | None
    """When the lock was next granted to somebody else after the strike."""
    charges: tuple[tuple[float, str, int | None], ...]
    """(when, who, token) of each charge of the invoice."""
    next_first: str
    """The customer's next invoice after one delivery; only where it was asked for."""
    next_last: str
    """And after a delivery each lease until it was charged, for 12 leases."""
    next_deliveries: int
    """How many deliveries that took in all."""


class Queue:
    """Delivers one experiment's jobs."""

    def __init__(self, design: Design, fault: Fault, assume: Assumptions = DEFAULT) -> None:
        self.design, self.fault, self.assume = design, fault, assume
        self.world = World()
        self.deliveries = 0
        self.lease_over_at: float | None = None
        self.let_go_at = float("inf")
        self.a = Process("A", self.world.clock, self.world.wire)
        self.b: Process | None = None
        fault.prepare(self.world, self.a, assume)
        self.world.wire.tap = fault
        fault.deliver, fault.delivered = self._deliver_to, []

    def run(self, with_next: bool = False) -> Outcome:
        """Delivers A, B and C. with_next: then the customer's next invoice too."""
        self._deliver(self.a)
        self._while_the_fault_stands()
        self.let_go_at = self.world.clock.now
        self.fault.lift()
        self._until(lambda: all(process.over for process in self.fault.delivered))
        self._clean_deliveries("invoice")
        self.world.clock.advance(OPEN_END)
        verdict = self._verdict("invoice")
        first = last = ""
        before = self.deliveries
        if with_next:
            last = first = self._clean_deliveries("next", only_once=True)
            if first == NO_CHARGE:
                last = self._clean_deliveries("next")
        return self._outcome(verdict, first, last, self.deliveries - before)

    def _while_the_fault_stands(self) -> None:
        clock = self.world.clock
        while self.fault.struck is None or clock.now - self.fault.struck < AT_MOST:
            clock.advance(TICK)
            self._watch_the_lease()
            if self.b is None:
                if self._took() is not None or self._charge_left() or self.fault.struck is not None or self.a.over:
                    self.b = self._deliver(Process("B", clock, self.world.wire))
                continue
            if self._was_tried(self.b):
                if self.a.over or not self.fault.stays_until_a_ends:
                    return
            elif self.b.over:
                self.b = self._deliver(Process("B", clock, self.world.wire))

    def _was_tried(self, b: Process) -> bool:
        """Whether B had begun or was still waiting after A's lease had run out, and is through."""
        took = self._took()
        if self.lease_over_at is not None:
            return b.over and b.ended_at >= self.lease_over_at
        if took is None:
            return b.over and b.ended_at >= (self.fault.struck or 0.0)
        return self.world.clock.now - took >= UNRENEWED and not self._will_run_out()

    def _will_run_out(self) -> bool:
        """A Redis lease that nobody has renewed for a lease is only long: it ends by itself, and is waited for."""
        redis = self.world.redis
        in_redis = redis.peek(LOCK) == self._owner("A", 1)
        renewed = redis.extended_at is not None and self.world.clock.now - redis.extended_at <= 1
        return in_redis and not renewed and not self.assume.long_leases_are_cut_short

    def _watch_the_lease(self) -> None:
        """Notes when A's lease had run out by the server's account; one that was released counts as if it ran on."""
        took = self._took()
        if took is None or self.lease_over_at is not None or self.world.holds("A", self._owner("A", 1)):
            return
        released = self._owner("A", 1) in self.world.redis.released or self.assume.lost_lock_waits_a_lease
        self.lease_over_at = max(self.world.clock.now, took + 1) if released else self.world.clock.now

    def _took(self) -> float | None:
        return next((when for when, who, _ in self.world.grants() if who == "A"), None)

    def _charge_left(self) -> bool:
        return any(x.process is self.a and x.ask.role == "charge" for _, x, _ in self.world.wire.seen)

    def _deliver_to(self, who: str) -> Process:
        return self._deliver(Process(who, self.world.clock, self.world.wire))

    def _deliver(self, process: Process, invoice: str = "invoice") -> Process:
        self.deliveries += 1
        self.fault.delivered.append(process)
        owner = self._owner(process.who, self.deliveries)
        me = Delivery(process, self.world.clock, invoice, owner, self.assume)
        process.start(self.design.job(me, self.design))
        return process

    @staticmethod
    def _owner(who: str, delivery: int) -> str:
        return f"{who}{delivery}"

    def _clean_deliveries(self, invoice: str, only_once: bool = False) -> str:
        """Delivers C once, and again each lease while there is no charge."""
        begin = self.world.clock.now
        while True:
            due = self.world.clock.now + 1
            c = self._deliver(Process("C", self.world.clock, self.world.wire), invoice)
            self._until(lambda c=c: c.over)  # type: ignore[misc]
            verdict = self._verdict(invoice)
            if only_once or verdict != NO_CHARGE or self.world.clock.now - begin > AT_MOST:
                return verdict
            self.world.clock.advance(max(0.0, due - self.world.clock.now))

    def _until(self, condition: Callable[[], bool]) -> None:
        end = self.world.clock.now + OPEN_END
        while not condition():
            if self.world.clock.now > end:
                raise RuntimeError("the model does not come to an end")
            self.world.clock.advance(TICK)

    def _verdict(self, invoice: str) -> str:
        charges = sum(charge.invoice == invoice for charge in self.world.processor.ledger)
        return (NO_CHARGE, EXACTLY_ONE, DOUBLE_CHARGE)[min(charges, 2)]

    def _outcome(self, verdict: str, next_first: str, next_last: str, next_deliveries: int) -> Outcome:
        struck, took = self.fault.struck, self._took()
        after = [when for when, who, _ in self.world.grants() if struck is not None and who != "A" and when >= struck]
        contended = took is not None and any(
            took + 1 < when < self.let_go_at and exchange.who == "B" for when, exchange, _ in self.world.wire.seen
        )
        return Outcome(
            verdict,
            self.fault.landed,
            contended,
            tuple(exchange.at(side) for _, exchange, side in self.world.wire.seen if exchange.process is self.a),
            struck,
            min(after, default=None),
            tuple((c.at, c.who, c.token) for c in self.world.processor.ledger if c.invoice == "invoice"),
            next_first,
            next_last,
            next_deliveries,
        )


def run(design: Design, fault: Fault, assume: Assumptions = DEFAULT, with_next: bool = False) -> Outcome:
    """One experiment."""
    return Queue(design, fault, assume).run(with_next)
