"""Faults that take more than one blow: an acquire that goes wrong before a slow charge, a busy worker, a third one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .faults import CHARGE_REQUEST, Fault, Freeze, Point
from .machine import Exchange, Process, Side
from .servers import LOCK

ACQUIRE_REQUEST: Point = ("redis", "acquire", 1, "request")
ACQUIRE_REPLY: Point = ("redis", "acquire", 1, "reply")
REQUEST_LATE, REPLY_LATE = 1.2, 0.5
"""Leases: a request that is longer under way than a lease, a reply that comes when half of one is left."""
STOPPED, RUNNING = 0.45, 0.1
"""Leases, in turn."""
OVER = 1.05
"""Leases after which A's lock would be gone, where nobody renews it."""
ASKS_WITHIN, AFTER_ASKING = 0.175, 0.02
ENDS_WITHIN, IN_CHARGE = 0.35, 0.65
"""Leases: what A has to end, and what the answer to the next owner's charge is held for, at most."""
TICK = 0.01


class RoughAcquire(Fault):
    """A's request for the lock, or its answer, is lost with its connection, or late. A's charge is held."""

    def __init__(self, place: str) -> None:
        super().__init__(ACQUIRE_REQUEST if place.startswith("request") else ACQUIRE_REPLY)
        self.place = place

    def takes(self, exchange: Exchange, side: Side) -> bool:
        if self.place == "request-late" and exchange.process is self.a and exchange.at(side) == self.point:
            self.world.clock.after(REQUEST_LATE, partial(self._let_go, exchange))  # it strikes when it is let go
            return True
        return super().takes(exchange, side)

    def _let_go(self, exchange: Exchange) -> None:
        self.struck, self.landed = self.world.clock.now, True
        self.world.wire.pass_on(exchange, "request")

    def strike(self, exchange: Exchange, side: Side) -> bool:
        if self.place == "reply-late":
            self.world.clock.after(REPLY_LATE, partial(self.world.wire.pass_on, exchange, side))
        else:
            self.world.wire.reset(exchange)
        return True

    def keeps(self, exchange: Exchange, side: Side) -> bool:
        return not self.lifted and exchange.at(side) == CHARGE_REQUEST and self.hold(exchange, side)


class Busy(Fault):
    """From its charge on, which is held, A runs for a tenth of a lease and is stopped for 0.45, again and again."""

    def strike(self, exchange: Exchange, side: Side) -> bool:
        self.world.clock.after(RUNNING, self._stop)
        return self.hold(exchange, side)

    def _stop(self) -> None:
        if not self.lifted and not self.a.over:
            self.a.frozen = True
            self.world.clock.after(STOPPED, self._go_on)

    def _go_on(self) -> None:
        if not self.lifted:
            self.a.thaw(self.assume.thaw_last_first)
            self.world.clock.after(RUNNING, self._stop)

    def lift(self) -> None:
        super().lift()
        self.a.thaw(self.assume.thaw_last_first)


class ThirdWorker(Freeze):
    """A is frozen past its lease; B and C come. A wakes up when one of them has charged and does not know it yet.

    Then the other one gets what A leaves behind, if it leaves anything.
    """

    def __init__(self, point: Point) -> None:
        super().__init__(point)
        self.charged: Exchange | None = None
        self.third = ""
        self.waking = False

    def strike(self, exchange: Exchange, side: Side) -> bool:
        self.world.clock.after(self.assume.c_comes_after, self._bring_c)
        return super().strike(exchange, side)

    def _bring_c(self) -> None:
        self.deliver("C")

    def takes(self, exchange: Exchange, side: Side) -> bool:
        if exchange.process is self.a:
            return super().takes(exchange, side)
        if self.charged is not None:
            if exchange.who == self.third and side == "request":
                self._wake_soon(AFTER_ASKING)
            return False
        made = exchange.ask.role == "charge" and side == "reply" and not isinstance(exchange.value, Exception)
        if not made or self.struck is None or self.lifted or not self._a_is_over():
            return False
        self.charged, self.third = exchange, "B" if exchange.who == "C" else "C"
        self.let_go_by = self.world.clock.now + IN_CHARGE
        self.world.clock.after(ASKS_WITHIN, partial(self._wake_soon, 0.0))
        return True

    def _a_is_over(self) -> bool:
        took = next((when for when, who, _ in self.world.grants() if who == "A"), None)
        gone = took is not None and self.world.redis.peek(LOCK) != "A1"
        return gone or self.world.clock.now > (self.struck or 0.0 if took is None else took) + OVER

    def _wake_soon(self, after: float) -> None:
        if not self.waking:
            self.waking = True
            self.world.clock.after(after, self._wake)

    def _wake(self) -> None:
        if not self.lifted:
            super().lift()
        self._when(lambda: self.a.over, self.world.clock.now + ENDS_WITHIN, self._bring_the_third)

    def _bring_the_third(self) -> None:
        if all(process.over for process in self._thirds()):
            self.deliver(self.third)  # it gave up while A still slept
        self._when(lambda: all(process.over for process in self._thirds()), self.let_go_by, self._let_go)

    def _let_go(self) -> None:
        assert self.charged is not None
        self.world.wire.pass_on(self.charged, "reply")

    def _thirds(self) -> list[Process]:
        return [process for process in self.delivered if process.who == self.third]

    def _when(self, condition: Callable[[], bool], by: float, then: Callable[[], None]) -> None:
        if condition() or self.world.clock.now >= by:
            then()
        else:
            self.world.clock.after(TICK, partial(self._when, condition, by, then))

    def lift(self) -> None:
        if not self.lifted:
            super().lift()
