"""partition-reset: something on A's way to Redis answers for it with resets, as a firewall or a lost NAT entry does.

Toxiproxy's reset_peer resets connections opened after it was set, and only closes those that were there; the tap resets
those.
"""

from __future__ import annotations

from harness.faults import register
from harness.faults._partition import Partition, Probe
from harness.network.toxics import Proxy


@register
class PartitionReset(Partition):
    """A's connections are reset, those it has and those it opens."""

    name = "partition-reset"
    title = "worker A is cut off from Redis: its connections are reset (RST), old and new"
    refuses = True
    cut_off = "Redis lost the connection through A's link, and a new one was reset"

    async def cut(self, proxy: Proxy) -> None:
        await proxy.add_toxic("reset_peer", "downstream", timeout=0)
        count = self.bench.link("A", "redis").reset_all()
        self.bench.history.add("tap", "A", "reset", connections=count)

    async def heal(self, proxy: Proxy) -> None:
        await proxy.remove_toxic("reset_peer", "downstream")

    async def seen_cut(self, probe: Probe) -> str | None:
        if await probe.name(self.bench.redis) is not None:
            return "Redis still had the connection through A's link, which should have been reset"
        if (met := await probe.knock()) != "reset":
            return f"a new connection through A's link was {met}, not reset"
        return None
