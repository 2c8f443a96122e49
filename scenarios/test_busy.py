"""Worker A hardly gets the CPU while it charges: stopped again and again, each time for less than half a lease.

A lock that is renewed with room to spare stands. One that is not renewed, or only just in time, does not.
"""

from __future__ import annotations

from harness import Result, experiments
from harness.faults.busy import PLACES

_RUNS_OUT = "nothing renews the lease, which runs out while A is busy; B reads that nothing is paid and charges too"

HOLES = {(subject, place): _RUNS_OUT for subject in ("naive-ttl", "long-ttl") for place in PLACES}
"""Why not elsewhere: a renewal every third of a lease is late by less than the other two thirds. With fencing B's token
has reached the processor before A's charge does."""


@experiments("busy", places=PLACES, holes=HOLES)
def test_a_worker_that_is_kept_busy_does_not_lose_its_lock(experiment: Result) -> None:
    experiment.charged_exactly_once()
