"""busy: A gets the CPU only now and then: a starved container, a blocked event loop, a long run of the interpreter.

Never for as long as a lease: a watchdog with room to spare survives it, one that renews at the last moment does not.
"""

from __future__ import annotations

import asyncio

from harness import kernel
from harness.faults import register
from harness.faults._at_boundary import AtBoundary
from harness.history import now_ns
from harness.jobqueue import first_of
from harness.network.tap import Fate, Message
from harness.processes import freeze, thaw

PLACES = ("charge-request",)

STOPPED_LEASES = 0.45
RUNNING_LEASES = 0.1
"""Of each 0.55 leases A runs for 0.1. What it wants to do every third or half of a lease it does every 0.55 leases;
what it wants to do every two thirds it does after 1.1, and the lease is gone."""
MOST_STOPPED_LEASES = 0.6
"""A stop that took longer was the harness's doing."""
_MOST_RUNNING_LEASES = 0.4
_STOP_TIMEOUT_S = 5.0


@register
class Busy(AtBoundary):
    """From A's charge on, whose request is held for as long, A and its descendants are stopped again and again."""

    name = "busy"
    title = "worker A hardly gets the CPU while it charges: stopped for 0.45 leases, running for 0.1, and again"

    async def arm(self) -> None:
        await super().arm()
        self._stops_ms: list[float] = []
        self._keeping_busy: asyncio.Task[None] | None = None

    async def strike(self, message: Message) -> Fate:
        self.bench.strike(boundary=message.boundary)
        self._keeping_busy = asyncio.get_running_loop().create_task(self._keep_busy())
        return await self.bench.hold_until_lifted(message)

    async def _keep_busy(self) -> None:
        bench = self.bench
        lease_s, a = bench.lease_s, bench.a.process
        while not bench.lifted.is_set() and a.returncode is None:
            await self._let_run()
            if bench.lifted.is_set() or a.returncode is not None:
                return
            pids = await freeze(a, timeout_s=_STOP_TIMEOUT_S)
            began_ns = now_ns()
            bench.history.add("kernel", "A", "stopped", processes=len(pids))
            try:
                await first_of(bench.lifted.wait(), timeout_s=STOPPED_LEASES * lease_s)
                if kernel.all_stopped(pids):
                    self._stops_ms.append((now_ns() - began_ns) / 1e6)
            finally:
                thaw(a)
            bench.history.add("kernel", "A", "continued", processes=len(pids))

    async def _let_run(self) -> None:
        """A runs for RUNNING_LEASES, not counting what it spends waiting for a CPU of this machine."""
        bench = self.bench
        pid, began_ns = bench.a.process.pid, now_ns()
        waited_ns = kernel.run_delay_ns(pid) or 0
        left_s = RUNNING_LEASES * bench.lease_s
        while left_s > 0 and (now_ns() - began_ns) / 1e9 < _MOST_RUNNING_LEASES * bench.lease_s:
            if await first_of(bench.lifted.wait(), timeout_s=left_s):
                return
            starved_ns = (kernel.run_delay_ns(pid) or waited_ns) - waited_ns
            left_s = RUNNING_LEASES * bench.lease_s - (now_ns() - began_ns - starved_ns) / 1e9

    async def lift(self) -> None:
        self.bench.lifted.set()
        if self._keeping_busy is not None:
            await self._keeping_busy
        await super().lift()

    async def clean_up(self) -> None:
        if self._keeping_busy is not None and not self._keeping_busy.done():
            self._keeping_busy.cancel()
            await asyncio.gather(self._keeping_busy, return_exceptions=True)

    async def witness(self) -> None:
        if self.never_struck():
            return
        bench = self.bench
        longest_ms = max(self._stops_ms, default=0.0)
        if longest_ms > MOST_STOPPED_LEASES * bench.spec.ttl_ms:
            reason = f"A was stopped for {longest_ms:.0f} ms at once, longer than asked: the machine was too slow"
            bench.history.add("queue", "fault", "harness-failed", reason=reason)
        elif len(self._stops_ms) < 2:
            bench.not_landed(f"A was stopped {len(self._stops_ms)} times only")
        else:
            bench.landed("kernel", f"A was stopped {len(self._stops_ms)} times, for {longest_ms:.0f} ms at most")
