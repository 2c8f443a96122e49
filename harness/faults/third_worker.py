"""third-worker: A wakes up while another worker has the lock and is charging, and a third one waits for the lock.

Two workers cannot show a release that frees somebody else's lock, or a renewal that takes it over: by the time A is
let go, B is through. Here B and C both come while A is frozen, and either may be the one that gets the lock.
"""

from __future__ import annotations

import asyncio
import functools

from harness.faults import register
from harness.faults._acquire import at_acquire, no_acquire
from harness.faults.freeze import Freeze
from harness.history import now_ns
from harness.jobqueue import first_of
from harness.network.tap import Fate, Handler, Message
from harness.profile import Profile
from harness.witnesses import CLOCK_TOLERANCE_MS
from harness.worker import Worker

ACQUIRE_REPLY = "acquire-reply"
PLACES = (ACQUIRE_REPLY, "paid-read-reply", "charge-request")

OVER_LEASES = 1.05
A_ENDS_WITHIN_LEASES = 0.35
IN_CHARGE_LEASES = 0.65
"""How long the answer to the next owner's charge is held at most: it is slow, but within its own lease."""
_CHARGE = "post-v1-charges"
_CHARGED = ("charge-committed", "charge-replayed")


@register
class ThirdWorker(Freeze):
    """A is frozen past its lease, and woken when the next owner's charge is committed and not yet known to it."""

    name = "third-worker"
    title = "worker A wakes up from a freeze while the next owner of the lock is charging, and a third worker waits"

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        return no_acquire(profile) if place == ACQUIRE_REPLY else super().inapplicable(profile, place)

    async def arm(self) -> None:
        bench = self.bench
        await super().arm()
        if bench.spec.place == ACQUIRE_REPLY:
            at_acquire(bench, "reply", self._strike_once_a_is_known)
        self._in_charge: str | None = None
        self._third_asks = asyncio.Event()
        bench.on_message.append(self._watch)
        await bench.open_links("C")
        for worker in ("B", "C"):
            bench.link(worker, "processor").interceptor = functools.partial(self._intercept, worker)

    async def strike(self, message: Message) -> Fate:
        self.boundary = message.boundary
        starting_c = asyncio.ensure_future(self._start_c())
        fate = await super().strike(message)
        if self.bench.struck.is_set():
            await starting_c
        else:
            starting_c.cancel()
        return fate

    async def _start_c(self) -> None:
        await self.bench.struck.wait()
        await self.bench.deliver("C")

    def _watch(self, worker: str, message: Message) -> None:
        if self._in_charge is not None and worker == self._third and message.side == "request":
            self._third_asks.set()

    def _intercept(self, worker: str, message: Message) -> Handler | None:
        charged = message.label == _CHARGE and message.side == "reply" and message.info.get("status", 500) < 300
        standing = self.bench.struck.is_set() and not self.bench.lifted.is_set()
        if not charged or not standing or self._in_charge is not None or not self._a_is_over():
            return None
        self._in_charge, self._third = worker, "C" if worker == "B" else "B"
        return self._wake_a

    async def _wake_a(self, message: Message) -> Fate:
        """A charge is committed, its answer is held: A wakes up and ends, and the third gets what A leaves behind."""
        bench, owner = self.bench, self._in_charge or "?"
        bench.history.add("tap", owner, "held", boundary=message.boundary)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + IN_CHARGE_LEASES * bench.lease_s
        await first_of(self._third_asks.wait(), timeout_s=A_ENDS_WITHIN_LEASES * bench.lease_s / 2)
        await first_of(bench.lifted.wait(), timeout_s=4 * CLOCK_TOLERANCE_MS / 1000)  # clearly before, by any clock
        await super().lift()
        await first_of(bench.a.process.wait(), timeout_s=A_ENDS_WITHIN_LEASES * bench.lease_s)
        if all(worker.process.returncode is not None for worker in self._third_workers()):
            await bench.deliver(self._third)  # it gave up while A still slept: the job is delivered at least once
        for worker in self._third_workers():
            await first_of(worker.process.wait(), timeout_s=deadline - loop.time())
        self._let_go_again = bench.history.add("tap", owner, "let-go", boundary=message.boundary)
        return Fate.DELIVER

    def _a_is_over(self) -> bool:
        """Whether A's lease is gone, or would be: who asks for no lock charges before that, and is not meant."""
        bench, lease = self.bench, self.bench.a_lease
        if lease is not None and lease.gone_ns is not None:
            return True
        began_ns = bench.struck_ns if lease is None else lease.granted_ns
        return now_ns() > began_ns + int(OVER_LEASES * bench.lease_s * 1e9)

    def _third_workers(self) -> list[Worker]:
        return [worker for worker in self.bench.workers if worker.name == self._third]

    async def lift(self) -> None:
        if not self.bench.lifted.is_set():
            await super().lift()

    async def witness(self) -> None:
        await super().witness()
        bench, owner = self.bench, self._in_charge
        if owner is None or bench.history.select("not-landed"):
            return
        log = bench.history
        charged = [e for what in _CHARGED for e in log.select(what, who=owner, witness="processor")]
        asked = bench.history.select("request", who=self._third, witness="tap")
        if not any(event.t_ms < self._lifted.t_ms for event in charged):
            bench.not_landed(f"the processor did not have {owner}'s charge when A woke up")
        elif not any(self._lifted.t_ms < event.t_ms < self._let_go_again.t_ms for event in asked):
            bench.not_landed(f"{self._third} asked nobody anything while {owner} was charging and A awake")
