"""RedLock.net#101, spring-integration#11044: the lock is evicted by allkeys-lru; the renewal just takes it again."""

from __future__ import annotations

from harness.subject import Job
from tests.broken.shop import EXTEND, Watchdog, bill, locked


class StubbornWatchdog(Watchdog):
    def _renew(self) -> None:
        while not self._stop.wait(self._lease_ms / 3000):
            if not self._store.eval(EXTEND, 1, self._lock, self._owner, self._lease_ms):
                self._store.set(self._lock, self._owner, nx=True, px=self._lease_ms)  # who had it meanwhile?


def run(job: Job) -> None:
    with locked(job, watchdog=StubbornWatchdog) as lock:
        bill(job, lock.store)
