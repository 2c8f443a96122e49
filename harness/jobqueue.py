"""The harness is the job queue: it delivers at least once, as any queue does when it hears nothing.

A first. B when A holds the lock or, at the latest, when A's charge leaves it, when the fault strikes, or when A ends.
B again whenever it ends, until one attempt has begun, or was still waiting, after A's lease had run out by the server's
account; where it does not run out, until 3 leases have passed; never more than 12 leases. Then the fault is lifted, A
ends, and C is delivered with nothing wrong any more: once, and again each lease while there is no charge, for at most
12 leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from harness.bench import Bench
from harness.history import now_ns
from harness.verdict import NO_FAULT
from harness.witnesses import CLOCK_TOLERANCE_MS
from harness.worker import Worker

ENDLESS_LEASES = 3
UNLOCKED_LEASES = 3.5
"""How long B is delivered to a subject that holds no lock over its charge: its protection may be a record that a
successor takes over when it is old, and 3 leases is what the built-in reserve-confirm calls old."""
MOST_LEASES = 12
A_ENDS_WITHIN_LEASES = 30
"""More than any timeout of the job (20 leases for a charge, 8 for the lock): what runs longer hangs."""
_REDELIVERY_LEASES = 0.5
_UNLOCKED_REDELIVERY_LEASES = 1.2
"""Three deliveries, and one when UNLOCKED_LEASES have passed: before that nothing runs out that B could wait for."""
_TICK_S = 0.05
_CLEARLY_NS = int(2e6 * CLOCK_TOLERANCE_MS)
"""By how much B's last message must have come later, so that the witnesses' clocks leave no doubt of it."""


async def first_of(*waits: Awaitable[object], timeout_s: float) -> bool:
    """Waits until one of several things has happened; False when none has in time."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    return bool(done)


class JobQueue:
    """Delivers one job of one bench."""

    def __init__(self, bench: Bench, charged: Callable[[], Awaitable[int]]) -> None:
        self.bench = bench
        self._charged = charged
        """Asks the processor how many charges there are."""

    async def run(self, lift: Callable[[], Awaitable[None]]) -> None:
        """The whole of it; lift ends the fault."""
        bench = self.bench
        a = await bench.deliver("A")
        if a is None:
            return
        await self._until_b_is_due(a)
        b = asyncio.ensure_future(self._deliver_b(a))
        try:
            await self._while_fault_stands(a, b)
            a.look_at_threads()
            await lift()
            bench.lifted.set()
            await self._end(a)
            if bench.spec.fault == NO_FAULT and a.killed:
                return  # it hangs with nothing wrong: so would the others
            await b
        finally:
            b.cancel()
        for worker in bench.workers:
            await self._end(worker)
        await self._deliver_c()

    async def _until_b_is_due(self, a: Worker) -> None:
        bench = self.bench

        async def locked() -> None:
            while bench.account.first_of("A") is None:
                await bench.account.changed.wait()

        delay = bench.jitter("b-starts")
        await first_of(
            locked(), bench.charge_left.wait(), bench.struck.wait(), a.process.wait(),
            timeout_s=MOST_LEASES * bench.lease_s,
        )  # fmt: skip
        if delay:
            await asyncio.sleep(delay * bench.lease_s)

    # --- B ---

    def _ran_out_ns(self) -> int | None:
        """When A's lease ran out, or A let go of it, by the server's account; None while A holds it."""
        bench = self.bench
        if not bench.struck.is_set() and bench.workers[0].process.returncode is None:
            return None
        if bench.spec.fault == NO_FAULT:  # nothing is waited out where nothing goes wrong
            return bench.workers[0].process.ended_ns
        if bench.profile.unlocked:
            return bench.struck_ns + int(UNLOCKED_LEASES * bench.lease_s * 1e9)
        lease = bench.a_lease
        return bench.struck_ns if lease is None else lease.gone_ns

    def _endless(self) -> bool:
        """A still holds the lock, and the lease does not run out: it is renewed, or a session's."""
        bench, lease = self.bench, self.bench.a_lease
        if lease is None or lease.gone_ns is not None:
            return False
        renewed = [at for at in lease.renewals_ns if at > bench.struck_ns + int(bench.lease_s * 0.5e9)]
        return lease.expires_ns is None or bool(renewed)

    async def _deliver_b(self, a: Worker) -> None:
        """Delivers B again and again while the fault stands."""
        bench = self.bench
        while not bench.lifted.is_set():
            began_ns = now_ns()
            worker = await bench.deliver("B")
            if worker is None:
                return
            await bench.ended(worker, (MOST_LEASES + A_ENDS_WITHIN_LEASES) * bench.lease_s)
            ran_out = self._ran_out_ns()
            if ran_out is not None and (began_ns >= ran_out or bench.b_spoke_ns >= ran_out + _CLEARLY_NS):
                return  # it began after that, or was still at it; to end a bit later is not to contend
            interval = _UNLOCKED_REDELIVERY_LEASES if bench.profile.unlocked else _REDELIVERY_LEASES
            due_ns = began_ns + int(interval * bench.lease_s * 1e9)
            pause_s = (min(due_ns, ran_out or due_ns) - now_ns()) / 1e9
            if pause_s > 0:
                await first_of(bench.lifted.wait(), *self._worth_another_try(), timeout_s=pause_s)

    def _worth_another_try(self) -> list[Awaitable[object]]:
        """A lock that changes hands while nobody waits for it; one that guards no charge does with every delivery."""
        return [] if self.bench.profile.unlocked else [self.bench.account.changed.wait()]

    async def _while_fault_stands(self, a: Worker, b: asyncio.Future[None]) -> None:
        """Returns when the fault may be lifted."""
        bench = self.bench
        stop_ns = now_ns() + int(MOST_LEASES * bench.lease_s * 1e9)
        await first_of(bench.struck.wait(), a.process.wait(), timeout_s=MOST_LEASES * bench.lease_s)
        left_s = (stop_ns - now_ns()) / 1e9
        await first_of(bench.b_asked.wait(), asyncio.shield(b), timeout_s=max(0.0, left_s))
        endless_s = ENDLESS_LEASES * bench.lease_s
        await asyncio.wait([b], timeout=endless_s)
        while not b.done() and now_ns() < stop_ns and not self._endless():
            await asyncio.wait([b], timeout=_TICK_S)
        extra = bench.jitter("fault-lasts")
        if extra:
            await asyncio.sleep(extra * bench.lease_s)

    # --- the end ---

    async def _end(self, worker: Worker) -> None:
        """A worker ends of itself, or is ended when it hangs."""
        if not await self.bench.ended(worker, A_ENDS_WITHIN_LEASES * self.bench.lease_s):
            await self.bench.kill(worker)

    async def _deliver_c(self) -> None:
        """The last clean delivery."""
        bench = self.bench
        stop_ns = now_ns() + int(MOST_LEASES * bench.lease_s * 1e9)
        while True:
            began_ns = now_ns()
            worker = await bench.deliver("C")
            if worker is None:
                return
            await self._end(worker)
            if await self._charged() or now_ns() > stop_ns:
                return
            if bench.spec.fault == NO_FAULT and not bench.asked_to_charge:
                return  # with nothing wrong from the beginning, nobody has so much as asked
            await asyncio.sleep(max(0.0, bench.lease_s - (now_ns() - began_ns) / 1e9))
