"""freeze: SIGSTOP, as a long garbage collection, a paused VM or a suspended laptop looks to the rest of the world."""

from __future__ import annotations

import asyncio

from harness import kernel
from harness.faults import register
from harness.faults._at_boundary import AtBoundary
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

    async def arm(self) -> None:
        await super().arm()
        self._pids: list[int] = []
        self._let_go = asyncio.Event()

    async def strike(self, message: Message) -> Fate:
        bench = self.bench
        self._pids = await freeze(bench.a.process, timeout_s=STOP_TIMEOUT_S)
        threads = sum(len(kernel.thread_states(pid)) for pid in self._pids)
        bench.history.add("kernel", "A", "stopped", threads=threads, processes=len(self._pids))
        bench.strike(boundary=message.boundary)
        if message.side == "request":
            fate = await bench.hold_until_lifted(message)
            self._let_go.set()
            return fate
        self._let_go.set()
        return Fate.DELIVER

    async def lift(self) -> None:
        bench = self.bench
        if self._pids:
            self._still_stopped = kernel.all_stopped(self._pids) and bool(kernel.thread_states(bench.a.process.pid))
            self._stopped_tree = sorted(bench.a.process.tree()) == sorted(self._pids)
            bench.history.add("queue", "fault", "fault-lifted")
            bench.lifted.set()
            await asyncio.wait_for(self._let_go.wait(), STOP_TIMEOUT_S)
            thaw(bench.a.process)
            bench.history.add("kernel", "A", "continued", processes=len(self._pids))
        else:
            await super().lift()

    async def witness(self) -> None:
        if self.never_struck():
            return
        stopped = self.bench.history.select("stopped", who="A", witness="kernel")
        if not stopped:
            self.bench.not_landed("the kernel never showed every thread of A stopped")
        elif not self._still_stopped:
            self.bench.not_landed("something woke A up, or killed it, while it should have been frozen")
        elif not self._stopped_tree:
            self.bench.not_landed("A has a process that was not stopped with it")
        else:
            detail = stopped[0].detail
            self.bench.landed(
                "kernel", f"{detail['threads']} threads of {detail['processes']} processes were stopped until the thaw"
            )
