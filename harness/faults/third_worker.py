"""third-worker: A wakes up while B is in charge, and C waits for the lock. What A does to it then, C gets to feel.

Two workers cannot show a release that frees somebody else's lock, or a renewal that takes it over: by the time A is
let go, B is through.
"""

from __future__ import annotations

import asyncio

from harness.bench import Worker
from harness.faults import register
from harness.faults._acquire import at_acquire, no_acquire
from harness.faults.freeze import Freeze
from harness.jobqueue import first_of
from harness.network.tap import Fate, Handler, Message
from harness.profile import Profile

ACQUIRE_REPLY = "acquire-reply"
PLACES = (ACQUIRE_REPLY, "paid-read-reply", "charge-request")

C_ASKS_WITHIN_LEASES = 0.35
IN_CHARGE_LEASES = 0.65
"""How long the answer to B's charge is held at most: B is slow, but within its own lease."""
_CHARGE = "post-v1-charges"


@register
class ThirdWorker(Freeze):
    """A is frozen past its lease, and woken when B's charge is committed and B does not know it yet."""

    name = "third-worker"
    title = "worker A wakes up from a freeze while B has the lock and is charging, and C waits for it"

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        return no_acquire(profile) if place == ACQUIRE_REPLY else super().inapplicable(profile, place)

    async def arm(self) -> None:
        bench = self.bench
        await super().arm()
        if bench.spec.place == ACQUIRE_REPLY:
            at_acquire(bench, "reply", self.strike)
        self._met = False
        self._c_asks = asyncio.Event()
        self._c_asked_in_time = False
        bench.on_message.append(self._watch_c)
        bench.link("B", "processor").interceptor = self._intercept_b

    async def strike(self, message: Message) -> Fate:
        self.boundary = message.boundary
        return await super().strike(message)

    def _watch_c(self, worker: str, _: Message) -> None:
        if worker == "C":
            self._c_asks.set()

    def _intercept_b(self, message: Message) -> Handler | None:
        charged = message.label == _CHARGE and message.side == "reply" and message.info.get("status", 500) < 300
        standing = self.bench.struck.is_set() and not self.bench.lifted.is_set()
        return self._b_in_charge if charged and standing and not self._met else None

    async def _b_in_charge(self, message: Message) -> Fate:
        """B's charge is committed, its answer is held: C comes, A wakes up and ends, C gets what A leaves behind."""
        bench = self.bench
        self._met = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + IN_CHARGE_LEASES * bench.lease_s
        bench.history.add("tap", "B", "held", boundary=message.boundary)
        c = await bench.deliver("C")
        await first_of(self._c_asks.wait(), timeout_s=C_ASKS_WITHIN_LEASES * bench.lease_s)
        self._c_asked_in_time = self._c_asks.is_set()
        await super().lift()
        await first_of(bench.a.process.wait(), timeout_s=deadline - loop.time())
        if c is not None and c.process.returncode is not None and not self._outlived(c):
            c = await bench.deliver("C")  # it gave up while A was still there: C is delivered at least once, too
        if c is not None:
            await first_of(c.process.wait(), timeout_s=deadline - loop.time())
        bench.history.add("tap", "B", "let-go", boundary=message.boundary)
        return Fate.DELIVER

    def _outlived(self, c: Worker) -> bool:
        """Whether C was still there when A ended."""
        ended_ns = self.bench.a.process.ended_ns
        return ended_ns is None or (c.process.ended_ns or 0) >= ended_ns

    async def lift(self) -> None:
        if not self.bench.lifted.is_set():
            await super().lift()

    async def witness(self) -> None:
        await super().witness()
        if not self._met or self.bench.history.select("not-landed"):
            return
        committed = self.bench.history.select("charge-committed", who="B", witness="processor")
        if not committed or committed[0].t_ms > self._lifted.t_ms:
            self.bench.not_landed("the processor did not have B's charge when A woke up")
        elif not self._c_asked_in_time:
            self.bench.not_landed(f"C asked nobody anything within {C_ASKS_WITHIN_LEASES} leases")
