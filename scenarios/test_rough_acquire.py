"""The request for the lock, or the answer to it, is lost or late; then the charge is slow.

A worker whose acquire failed must not go on as if it had not, and one whose acquire took long must know how long.
"""

from __future__ import annotations

from harness import Result, experiments
from harness.faults.rough_acquire import PLACES, REPLY_LATE, REQUEST_LATE

_RUNS_OUT = "the lock that A got in the end runs out while its charge is under way; B finds nothing paid and charges"

HOLES = {(subject, place): _RUNS_OUT for subject in ("naive-ttl", "long-ttl") for place in (REQUEST_LATE, REPLY_LATE)}
"""Why not elsewhere.

request-lost, reply-lost: A sees the connection break, and ends. After a lost reply its lock stands for a lease.
request-late: the watchdogs count their lease from before they asked, so they give up; with fencing B's token has
    reached the processor before A's charge does.
reply-late: half of the lease is left, and the watchdogs' first renewal comes after a third of one.
"""


@experiments("rough-acquire", places=PLACES, holes=HOLES)
def test_an_acquire_that_went_wrong_is_not_taken_for_a_lock(experiment: Result) -> None:
    experiment.charged_exactly_once()
