"""redis-aof: Redis with an append-only file is killed and started again. A control: the lock survives this.

A process that is killed loses nothing that it has written to the file (the kernel has it), synced or not.
"""

from __future__ import annotations

import asyncio

from harness.bench import Bench
from harness.faults import register
from harness.faults._aof import EVERYSEC
from harness.faults._redis_loss import RedisLoss, told
from harness.history import now_ns
from harness.jobqueue import first_of
from harness.network.tap import Fate, Message

HELD_LEASES = 0.5
"""How long A's message is held after the restart: B has to ask the lock that survived, and A to be through in time."""
SPARE_LEASES = 0.3
"""A is let go with at least so much of its lease left, whether B has asked or not."""
LEAST_LEFT_LEASES = 0.6
"""With less of A's lease left after the restart (on a machine that is busy with something else) there is no control."""
_LONGEST_LEASES = 2.0


@register
class RedisAof(RedisLoss):
    """The lock has to be there after the restart, with what is left of its lease; B asks for it in vain.

    A is let go before its lease runs out: a charge that outlives the lease is slow-charge's business.
    """

    name = "redis-aof"
    title = "Redis with an append-only file (everysec) is killed (SIGKILL) and started again: a control"
    own_redis = EVERYSEC

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._asked = asyncio.Event()
        self._let_go_ns = 0

    async def break_redis(self) -> None:
        await self.restart()

    def _note_loss(self) -> None:
        bench = self.bench
        bench.on_message.append(self._watch_b)
        self.wake_the_queue()
        left_ms = None if self.after is None or self.lock_key is None else self.after.left_ms.get(self.lock_key)
        if left_ms is not None and left_ms < LEAST_LEFT_LEASES * bench.spec.ttl_ms:
            reason = (
                f"the restart took {self.took_ms:.0f} ms and left A's lease {left_ms} ms, too little to let A end in"
            )
            bench.history.add("queue", "fault", "harness-failed", reason=reason)

    def _watch_b(self, worker: str, message: Message) -> None:
        if worker == "B" and message.link == "redis" and message.side == "request":
            self._asked.set()

    async def hold(self, message: Message) -> Fate:
        bench, after = self.bench, self.after
        bench.history.add("tap", "A", "held", boundary=message.boundary)
        left_ms = None if after is None or self.lock_key is None else after.left_ms.get(self.lock_key)
        longest_s = _LONGEST_LEASES * bench.lease_s
        if left_ms is not None:
            longest_s = min(longest_s, left_ms / 1000 - SPARE_LEASES * bench.lease_s)
        least_s = min(HELD_LEASES * bench.lease_s, longest_s)
        await first_of(bench.lifted.wait(), timeout_s=max(0.0, least_s))
        await first_of(self._asked.wait(), bench.lifted.wait(), timeout_s=max(0.0, longest_s - least_s))
        self._let_go_ns = now_ns()
        bench.history.add("tap", "A", "let-go", boundary=message.boundary)
        return Fate.DELIVER

    def doubt(self) -> str | None:
        assert self.before is not None
        assert self.after is not None
        if (doubt := self.not_restarted()) is not None:
            return doubt
        if not self.before.values or (self.lock_key is not None and self.lock_key not in self.before.left_ms):
            return "Redis did not have A's lock when it was killed"
        if gone := self.gone():
            return f"Redis should have kept what was in its append-only file, but lost {', '.join(gone)}"
        if not self._asked.is_set():
            return "B did not ask Redis for anything between the restart and the end of A's charge"
        taken = [lease for lease in self.bench.account.leases if lease.holder == "B"]
        if self.lock_key is not None and any(lease.granted_ns < self._let_go_ns for lease in taken):
            return "B was granted the lock although A's had survived"
        return None

    def evidence(self) -> str:
        assert self.after is not None
        kept = told(self.after, list(self.after.values))
        return f"Redis was started again and still had {kept}; B asked and was refused"
