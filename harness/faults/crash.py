"""crash: SIGKILL, as the OOM killer, a lost node or a deployment that does not wait does it."""

from __future__ import annotations

import asyncio
import signal

from harness import kernel
from harness.faults import register
from harness.faults._at_boundary import AtBoundary, went_on
from harness.faults._processors_word import contradiction
from harness.network.tap import Fate, Message
from harness.processes import kill_tree

KILL_TIMEOUT_S = 5.0


@register
class Crash(AtBoundary):
    """A and its descendants are killed while a message of A's is under way; the message is never delivered."""

    name = "crash"
    title = "worker A is killed (SIGKILL) while a message is under way"
    needs_a = True
    recovers_from = "killed"

    async def arm(self) -> None:
        await super().arm()
        self._pids: list[int] = []
        self._killing: asyncio.Task[None] | None = None

    async def strike(self, message: Message) -> Fate:
        # Shielded: a worker that dies with answers unread resets its connection, and what waits at it is given up.
        self._wanted, self._held = len(message.raw), message.held_bytes()
        self._killing = asyncio.get_running_loop().create_task(self._kill(message))
        await asyncio.shield(self._killing)
        return Fate.DROP

    async def _kill(self, message: Message) -> None:
        bench = self.bench
        self._pids = await kill_tree(bench.a.process, timeout_s=KILL_TIMEOUT_S)
        self._killed = bench.history.add("kernel", "A", "killed", processes=len(self._pids))
        bench.strike(boundary=message.boundary)
        bench.history.add("tap", "A", "dropped", boundary=message.boundary)

    async def clean_up(self) -> None:
        if self._killing is not None:
            await asyncio.gather(self._killing, return_exceptions=True)
        await super().clean_up()

    async def witness(self) -> None:
        if self._killing is not None:
            await self._killing
        if self.never_struck():
            return
        bench, status = self.bench, self.bench.a.process.returncode
        said = contradiction(bench.history, self.boundary, stopped_ms=self._killed.t_ms, held_until_ms=float("inf"))
        said = said or went_on(bench, self._killed.t_ms, float("inf"))
        if status != -signal.SIGKILL:
            bench.not_landed(f"A ended with status {status}, not by SIGKILL")
        elif not self._pids:
            bench.not_landed("A had ended before it could be killed")
        elif not kernel.all_gone(self._pids):
            bench.not_landed("a process of A's outlived the crash")
        elif self._held < self._wanted:
            bench.not_landed(f"the kernel counted {self._held} bytes under way, the message has {self._wanted}")
        elif said is not None:
            bench.not_landed(said)
        else:
            bench.landed("kernel", f"{len(self._pids)} processes of A ended by SIGKILL, the message undelivered")
