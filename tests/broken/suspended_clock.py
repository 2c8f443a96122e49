"""nextly#777: a deadline on a clock that stands still while the process does passes its own check after waking up."""

from __future__ import annotations

import threading
from typing import Any

import redis

from harness.subject import Job
from tests.broken.shop import LeaseLost, bill, locked, set_nx_px


class CoarseClock:
    """A cached clock, moved on by a thread: cheap to read, and frozen with its process."""

    def __init__(self, tick_s: float) -> None:
        self.elapsed_s = 0.0
        self._tick_s = tick_s
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(self._tick_s):
            self.elapsed_s += self._tick_s


def run(job: Job) -> None:
    clock, asked_at = CoarseClock(job.lease_s / 50), 0.0

    def acquire(store: redis.Redis, lock: str, owner: str, lease_ms: int) -> Any:
        nonlocal asked_at
        asked_at = clock.elapsed_s
        return set_nx_px(store, lock, owner, lease_ms)

    with locked(job, acquire=acquire) as lock:

        def check() -> None:
            if clock.elapsed_s >= asked_at + job.lease_s:
                raise LeaseLost

        bill(job, lock.store, check=check)
