"""redisson#5698, #5697: the watchdog skipped renewals for more than a lease while a long job ran.

The renewal task looks its lock up in a map; another thread's update of the map loses the entry for a while.
"""

from __future__ import annotations

import itertools

from harness.subject import Job
from tests.broken.shop import EXTEND, Watchdog, bill, locked


class ForgetfulWatchdog(Watchdog):
    def _renew(self) -> None:
        for turn in itertools.count(1):
            if self._stop.wait(self._lease_ms / 3000):
                return
            if turn == 1 or turn > 5:  # from the second third to the fifth the map has no such lock
                self._store.eval(EXTEND, 1, self._lock, self._owner, self._lease_ms)


def run(job: Job) -> None:
    with locked(job, watchdog=ForgetfulWatchdog) as lock:
        bill(job, lock.store)
