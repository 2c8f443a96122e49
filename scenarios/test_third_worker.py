"""Worker A wakes up from a freeze while the lock's next owner is charging, and a third worker waits for the lock.

A's lease is long gone. Whatever it does now, it must not charge, and it must leave the lock alone: the third worker
gets in otherwise. B and C both come while A is frozen; below, B is the one of them that got the lock.
"""

from __future__ import annotations

from harness import Result, experiments
from harness.faults.third_worker import PLACES

_PLAIN = ("naive-ttl", "long-ttl")
_NOT_RECORDED = "A wakes up without its lease and does not look. B has charged and not recorded it, so A charges"
_NO_CALLING_BACK = (
    "the deadline was checked before the charge was sent: what is on its way when A is frozen cannot be called back"
)

HOLES = {
    **{(subject, place): _NOT_RECORDED for subject in _PLAIN for place in PLACES},
    ("watchdog", "charge-request"): _NO_CALLING_BACK,
    ("reserve-confirm-naive", "paid-read-reply"): (
        "the intent is read, then written: A's answer, no intent, is stale, so it writes over B's and charges"
    ),
}
"""Why not elsewhere. All release with a look at the owner, so B's lock stands, and C waits for it.

acquire-reply, paid-read-reply: the watchdogs' deadline has passed; with fencing A's token is lower than B's; a key
    made from the invoice replays B's charge; reserve-confirm's insert finds B's row.
charge-request: A's token, or its voided intent, is refused; the key replays.
pg-advisory, pg-advisory-xact: A's session stands while A is frozen, so B is never in charge.
"""


@experiments("third-worker", places=PLACES, holes=HOLES)
def test_a_worker_that_wakes_up_leaves_the_next_owner_alone(experiment: Result) -> None:
    experiment.charged_exactly_once()
