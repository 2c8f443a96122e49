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
"""What kept A from running for longer was the machine's doing, and the harness's."""
_MOST_RUNNING_LEASES = 0.4
_QUIET_LEASES = 0.05
_GLANCE_LEASES = 0.01
_STOP_TIMEOUT_S = 5.0


@register
class Busy(AtBoundary):
    """From A's charge on, whose request is held for as long, A and its descendants are stopped again and again."""

    name = "busy"
    title = "worker A hardly gets the CPU while it charges: stopped for 0.45 leases, running for 0.1, and again"

    async def arm(self) -> None:
        await super().arm()
        self._stops_ms: list[float] = []
        """How long A did not run each time: stopped, and then waiting for a CPU of this machine."""
        self._heard_ns = 0
        self._keeping_busy: asyncio.Task[None] | None = None
        self.bench.on_message.append(self._hear)

    async def strike(self, message: Message) -> Fate:
        self.bench.strike(boundary=message.boundary)
        self._keeping_busy = asyncio.get_running_loop().create_task(self._keep_busy())
        return await self.bench.hold_until_lifted(message)

    def _hear(self, worker: str, message: Message) -> None:
        if worker == "A" and message.link == "redis":
            self._heard_ns = now_ns()

    def _owed(self) -> bool:
        """Whether A waits for an answer of Redis; the tap may have it already."""
        connections = self.bench.link("A", "redis").connections
        owed = any(c.unanswered or c.replies.waiting or c.replies.busy for c in connections)
        if owed:
            self._heard_ns = now_ns()
        return owed

    async def _keep_busy(self) -> None:
        bench, a = self.bench, self.bench.a.process
        resumed_ns = now_ns()
        while await self._let_run(resumed_ns):
            pids = await freeze(a, timeout_s=_STOP_TIMEOUT_S)
            if self._owed() and now_ns() - resumed_ns < _MOST_RUNNING_LEASES * bench.lease_s * 1e9:
                thaw(a)  # it has asked at the last moment
                continue
            stopped_ns = now_ns()
            bench.history.add("kernel", "A", "stopped", processes=len(pids))
            try:
                await first_of(bench.lifted.wait(), timeout_s=STOPPED_LEASES * bench.lease_s)
                if kernel.all_stopped(pids):
                    self._stops_ms.append((now_ns() - stopped_ns) / 1e6)
            finally:
                thaw(a)
            bench.history.add("kernel", "A", "continued", processes=len(pids))
            resumed_ns = now_ns()

    async def _let_run(self, resumed_ns: int) -> bool:
        """A runs for RUNNING_LEASES, not counting what it waits for a CPU of this machine; False when all is over.

        And on until it has had every answer of Redis that it waits for, and a while to take it in. An answer that came
        just after the stop would be read only after the next: a watchdog that counts from the answer to its next
        renewal would be late by two stops, where a busy process is late by one.
        """
        bench, a = self.bench, self.bench.a.process
        before, starved_ns, heard_ns, starved_then_ns = kernel.run_delays_ns(a.tree()), 0, self._heard_ns, 0
        while not bench.lifted.is_set() and a.returncode is None:
            owed, delays = self._owed(), kernel.run_delays_ns(a.tree())
            starved_ns = max((delay - before.get(thread, 0) for thread, delay in delays.items()), default=0)
            if self._heard_ns != heard_ns:
                heard_ns, starved_then_ns = self._heard_ns, starved_ns
            ran_leases = (now_ns() - resumed_ns - starved_ns) / 1e9 / bench.lease_s
            quiet_leases = (now_ns() - heard_ns - (starved_ns - starved_then_ns)) / 1e9 / bench.lease_s
            left = max(RUNNING_LEASES - ran_leases, _QUIET_LEASES - quiet_leases, _GLANCE_LEASES * owed)
            left = min(left, _MOST_RUNNING_LEASES - (now_ns() - resumed_ns) / 1e9 / bench.lease_s)
            if left <= 0:
                if self._stops_ms:
                    self._stops_ms[-1] += starved_ns / 1e6
                return True
            await first_of(bench.lifted.wait(), timeout_s=left * bench.lease_s)
        return False

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
            reason = f"A did not run for {longest_ms:.0f} ms at once, longer than asked: the machine was too slow"
            bench.history.add("queue", "fault", "harness-failed", reason=reason)
        elif len(self._stops_ms) < 2:
            bench.not_landed(f"A was stopped {len(self._stops_ms)} times only")
        else:
            bench.landed("kernel", f"A was stopped {len(self._stops_ms)} times, for {longest_ms:.0f} ms at most")
