"""partition-late: what A sends to Redis is held, and arrives when the partition heals: the dangerous case for locks.

A toxic of Toxiproxy's that drops (timeout) cannot model it: it closes the connection when it is removed. bandwidth with
rate 0 holds, and sends on once it is removed.
"""

from __future__ import annotations

from harness.faults import register
from harness.faults._partition import OPENED, RENAMED, Partition, Probe
from harness.faults._redis_loss import until
from harness.network.toxics import Proxy

_STREAMS = ("upstream", "downstream")
_ARRIVES_WITHIN_S = 5.0


@register
class PartitionLate(Partition):
    """Nothing gets through in either direction; all of it does in the end."""

    name = "partition-late"
    title = "worker A is cut off from Redis; what it sends is delivered when the partition heals"
    cut_off = "Redis got a command sent through A's link when it healed, not before"

    async def cut(self, proxy: Proxy) -> None:
        for stream in _STREAMS:
            await proxy.add_toxic("bandwidth", stream, rate=0)

    async def heal(self, proxy: Proxy) -> None:
        for stream in _STREAMS:
            await proxy.remove_toxic("bandwidth", stream)

    async def seen_cut(self, probe: Probe) -> str | None:
        name = await probe.name(self.bench.redis)
        if name is None:
            return "Redis lost the connection through A's link, which should have stayed"
        return None if name == OPENED else "a command sent through A's link reached Redis while it was cut"

    async def seen_healed(self, probe: Probe) -> str | None:
        server = self.bench.redis
        name = await until(lambda: probe.name(server), lambda name: name == RENAMED, within_s=_ARRIVES_WITHIN_S)
        if name != RENAMED:
            return "a command sent through A's link while it was cut never reached Redis: it was lost, not late"
        return None
