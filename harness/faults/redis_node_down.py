"""redis-node-down: one Redis of several is gone: its connections end, new ones are refused, it comes back empty."""

from __future__ import annotations

import asyncio

from harness.faults import register
from harness.faults._redis_loss import breakable
from harness.faults._redis_node import RedisNode
from harness.history import now_ns
from harness.nodes import Node


@register
class RedisNodeDown(RedisNode):
    """kill -9 of the second node, which is started again when B is through."""

    name = "redis-node-down"
    title = "one of several Redis nodes is killed, and comes back empty when the next worker is through"

    async def take_away(self, node: Node) -> None:
        self._run = (await node.redis.info("server"))["run_id"]
        await breakable(node.redis).kill()
        self.lost_there(now_ns())
        self._met = [await _knock(node)]

    async def still_away(self, node: Node) -> str | None:
        self._met.append(await _knock(node))
        return None if self._met == ["refused"] * 2 else f"a connection to the second node was {self._met}, not refused"

    async def bring_back(self, node: Node) -> None:
        await breakable(node.redis).restart()
        await node.watch.follow(node.redis)
        if (run := (await node.redis.info("server"))["run_id"]) == self._run:
            self._doubt = f"the second node was not started again: it is still run {run}"

    def evidence(self) -> str:
        return "connections to the second node were refused when it struck and still when it was lifted"


async def _knock(node: Node) -> str:
    """What a new connection to a node meets, by the kernel."""
    try:
        _, writer = await asyncio.open_connection(*node.redis.address)
    except OSError as error:
        return "refused" if isinstance(error, ConnectionRefusedError) else type(error).__name__
    writer.close()
    return "accepted"
