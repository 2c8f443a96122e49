"""nextly#777: a deadline on a clock that stands still while the process does passes its own check after waking up."""

from __future__ import annotations

import threading

from harness.subject import Job
from tests.broken.shop import LeaseLost, bill, locked


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
    clock = CoarseClock(job.lease_s / 50)

    with locked(job) as lock:

        def check() -> None:
            if clock.elapsed_s >= job.lease_s:
                raise LeaseLost

        bill(job, lock.store, check=check)
