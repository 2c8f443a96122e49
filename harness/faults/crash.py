"""crash: SIGKILL, as the OOM killer, a lost node or a deployment that does not wait does it."""

from __future__ import annotations

from harness import kernel
from harness.faults import register
from harness.faults._at_boundary import AtBoundary
from harness.network.tap import Fate, Message
from harness.processes import kill_tree

KILL_TIMEOUT_S = 5.0


@register
class Crash(AtBoundary):
    """A and its descendants are killed while a message of A's is under way; the message is never delivered."""

    name = "crash"
    title = "worker A is killed (SIGKILL) while a message is under way"

    async def arm(self) -> None:
        await super().arm()
        self._pids: list[int] = []

    async def strike(self, message: Message) -> Fate:
        bench = self.bench
        self._pids = await kill_tree(bench.a.process, timeout_s=KILL_TIMEOUT_S)
        bench.history.add("kernel", "A", "killed", processes=len(self._pids))
        bench.strike(boundary=message.boundary)
        bench.history.add("tap", "A", "dropped", boundary=message.boundary)
        return Fate.DROP

    async def witness(self) -> None:
        if self.never_struck():
            return
        if kernel.all_gone(self._pids) and self.bench.a.process.returncode == -9:
            self.bench.landed("kernel", f"{len(self._pids)} processes of A ended by SIGKILL")
        else:
            self.bench.not_landed(f"A ended with status {self.bench.a.process.returncode}, not by SIGKILL")
