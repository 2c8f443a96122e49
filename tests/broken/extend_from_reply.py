"""redsync#71, #149: extend() counted the new lease from its answer, and never looked how long it had taken itself."""

from __future__ import annotations

from harness.subject import Job
from tests.broken.shop import EXTEND, LeaseLost, Watchdog, bill, clock, locked


class ByHand(Watchdog):
    """The job extends its lease itself, when it is about to need it."""

    def _renew(self) -> None:
        return


def run(job: Job) -> None:
    with locked(job, watchdog=ByHand) as lock:

        def check() -> None:
            extended = lock.store.eval(EXTEND, 1, lock.lock, lock.owner, job.lock_ttl_ms)
            valid_until = clock() + job.lease_s  # should count from before the request
            if not extended or clock() >= valid_until:
                raise LeaseLost

        bill(job, lock.store, check=check)
