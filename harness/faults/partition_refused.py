"""partition-refused: A's way to Redis is down, as when a proxy or a service address goes: dropped, and refused anew."""

from __future__ import annotations

from harness.faults import register
from harness.faults._partition import Partition, Probe
from harness.network.toxics import Proxy


@register
class PartitionRefused(Partition):
    """A's connections are closed and new ones refused (enabled=false)."""

    name = "partition-refused"
    title = "worker A is cut off from Redis: its connections are dropped and new ones refused"
    refuses = True
    cut_off = "Redis lost the connection through A's link, and a new one was refused"

    async def cut(self, proxy: Proxy) -> None:
        await proxy.enable(False)

    async def heal(self, proxy: Proxy) -> None:
        await proxy.enable(True)

    async def seen_cut(self, probe: Probe) -> str | None:
        if await probe.name(self.bench.redis) is not None:
            return "Redis still had the connection through A's link, which should have been dropped"
        if (met := await probe.knock()) != "refused":
            return f"a new connection through A's link was {met}, not refused"
        return None
