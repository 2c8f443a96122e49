"""A lock that asks no more nodes than it needs: one that comes back empty, and there is a second majority.

redis.io, Distributed Locks with Redis, "Performance, crash recovery and fsync": a node that forgets in a restart may
grant the lock again. Who has it on all three can spare one; who stopped at two cannot.
"""

from __future__ import annotations

from typing import Any

from harness.subject import Job
from tests.broken.quorum import Quorum, charge_once


class FirstMajority(Quorum):
    def acquire(self, lock: str, owner: str, lease_ms: int) -> bool:
        granted = 0

        def until_enough(node: Any) -> bool:
            nonlocal granted
            if granted < self.majority:  # the bug: the others are not asked, and have nothing to keep anybody out with
                granted += bool(node.set(lock, owner, nx=True, px=lease_ms))
            return True

        self.ask(until_enough)
        if granted < self.majority:
            self.release(lock, owner)
        return granted >= self.majority


def run(job: Job) -> None:
    charge_once(job, FirstMajority(job))
