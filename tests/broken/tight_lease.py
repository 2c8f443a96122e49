"""redbeat#218: the lease is only 1.5 times the renewal interval, so one renewal that is a little late loses it."""

from __future__ import annotations

from harness.subject import Job
from tests.broken.shop import EXTEND, Watchdog, bill, locked


class LazyWatchdog(Watchdog):
    def _renew(self) -> None:
        while not self._stop.wait(self._lease_ms / 1000 / 1.5):
            self._store.eval(EXTEND, 1, self._lock, self._owner, self._lease_ms)


def run(job: Job) -> None:
    with locked(job, watchdog=LazyWatchdog) as lock:
        bill(job, lock.store, check=lock.watchdog.check)
