"""freeze: SIGSTOP, as a long garbage collection, a paused VM or a suspended laptop looks to the rest of the world."""

from __future__ import annotations

import asyncio

from harness import kernel
from harness.faults import register
from harness.faults._at_boundary import AtBoundary, went_on
from harness.faults._processors_word import contradiction
from harness.network.tap import Fate, Message
from harness.processes import freeze, thaw

STOP_TIMEOUT_S = 5.0


@register
class Freeze(AtBoundary):
    """A and its descendants are stopped while a message of A's is under way.

    A request is held until the thaw. A reply has left the server; it waits in A's socket.
    """

    name = "freeze"
    title = "worker A is stopped (SIGSTOP) while a message is under way, and wakes up believing it still has the lock"
    needs_a = True

    async def arm(self) -> None:
        await super().arm()
        self._pids: list[int] = []
        self._let_go = asyncio.Event()
        self._doubt: str | None = None

    async def strike(self, message: Message) -> Fate:
        bench = self.bench
        self._message = message
        pids = await freeze(bench.a.process, timeout_s=STOP_TIMEOUT_S)
        if self.is_over():  # it was lifted meanwhile, with nobody to be thawed
            thaw(bench.a.process)
            return Fate.DELIVER
        self._pids = pids
        self._ran_ns = kernel.ran_ns(self._pids)
        threads = sum(len(kernel.thread_states(pid)) for pid in self._pids)
        self._stopped = bench.history.add("kernel", "A", "stopped", threads=threads, processes=len(self._pids))
        bench.strike(boundary=message.boundary)
        fate = Fate.DELIVER
        if message.side == "request":
            fate = await bench.hold_until_lifted(message)
        self._let_go.set()
        return fate

    async def lift(self) -> None:
        bench = self.bench
        if not self._pids:
            await super().lift()
            return
        self._doubt = self._woken_or_leaking()
        self._lifted = bench.history.add("queue", "fault", "fault-lifted")
        bench.lifted.set()
        await asyncio.wait_for(self._let_go.wait(), STOP_TIMEOUT_S)
        thaw(bench.a.process)
        bench.history.add("kernel", "A", "continued", processes=len(self._pids))

    def _woken_or_leaking(self) -> str | None:
        """What the kernel has to say against A having stood still, and its request having been held, until now."""
        a, message = self.bench.a.process, self._message
        if not (kernel.all_stopped(self._pids) and kernel.thread_states(a.pid)):
            return "something woke A up, or killed it, while it should have been frozen"
        if kernel.ran_ns(self._pids) != self._ran_ns:
            return "A ran for a while when it should have been frozen"
        if sorted(a.tree()) != sorted(self._pids):
            return "A has a process that was not stopped with it"
        if message.side == "request" and (held := message.held_bytes()) < len(message.raw):
            return f"the kernel counts {held} bytes held at the thaw, A's request has {len(message.raw)}"
        return None

    async def witness(self) -> None:
        if self.never_struck():
            return
        bench = self.bench
        if not self._pids:
            bench.not_landed("A had ended before it could be stopped")
            return
        said = contradiction(
            bench.history, self.boundary, stopped_ms=self._stopped.t_ms, held_until_ms=self._lifted.t_ms
        )
        doubt = self._doubt or said or went_on(bench, self._stopped.t_ms, self._lifted.t_ms)
        if doubt is not None:
            bench.not_landed(doubt)
            return
        detail = self._stopped.detail
        bench.landed(
            "kernel", f"{detail['threads']} threads of {detail['processes']} processes were stopped until the thaw"
        )
