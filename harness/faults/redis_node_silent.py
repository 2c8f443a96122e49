"""redis-node-silent: one Redis of several stands still: it accepts, and answers nobody. Only a timeout notices."""

from __future__ import annotations

from harness import kernel
from harness.faults import register
from harness.faults._redis_node import RedisNode
from harness.nodes import Node
from harness.processes import freeze, thaw
from harness.stack import StackError

_STOP_TIMEOUT_S = 5.0


@register
class RedisNodeSilent(RedisNode):
    """SIGSTOP of the second node until B is through. What it was asked meanwhile it does then, late."""

    name = "redis-node-silent"
    title = "one of several Redis nodes stands still (SIGSTOP) until the next worker is through"
    stops_redis = True

    async def take_away(self, node: Node) -> None:
        if node.redis.process is None:
            raise StackError("the second node is no process of this machine")
        self._pids = await freeze(node.redis.process, timeout_s=_STOP_TIMEOUT_S)
        self._ran_ns = kernel.ran_ns(self._pids)

    async def still_away(self, node: Node) -> str | None:
        if not kernel.all_stopped(self._pids):
            return "something woke the second node up, or ended it, while it should have stood still"
        if kernel.ran_ns(self._pids) != self._ran_ns:
            return "the second node ran for a while when it should have stood still"
        return None

    async def bring_back(self, node: Node) -> None:
        if node.redis.process is not None:
            thaw(node.redis.process)

    def evidence(self) -> str:
        return f"the second node ({len(self._pids)} process) was stopped until it was lifted"
