"""The charge is committed and worker A is not told; or the lock is granted and worker A is not told.

What a worker does about a charge whose outcome it does not know decides more than its lock does, so the subjects here
differ in that alone: all hold naive-ttl's lock, and hold it still when they try the charge again.
"""

from __future__ import annotations

from harness import Result, experiments
from harness.faults.lost_reply import NO_ANSWER, PLACES
from harness.faults.lost_reply_acquire import REPLY

_AGAIN = {
    "retry-no-key": "A tries again, and nothing tells the processor that it is the same charge: it makes another",
    "retry-fresh-key": "A tries again with another key, which tells the processor that it is another charge",
}
_GIVES_UP = "A gives up with its charge made and not recorded, and lets its lock go: B reads that nothing is paid"
_WAITS = "A waits for the answer longer than its lease: B gets the lock, reads that nothing is paid, and charges"

HOLES = {
    **{(subject, place): reason for subject, reason in _AGAIN.items() for place in PLACES},
    # The control beside a user's own subject, which does not try again:
    **{("naive-ttl", place): _WAITS if place == NO_ANSWER else _GIVES_UP for place in PLACES},
}
"""Why not elsewhere: with a key made from the invoice the second attempt is given the answer to the first, also after
the error 500, because the key is bound to what was committed, not to what was answered."""

RETRIES = ("retry-no-key", "retry-fresh-key", "retry-invoice-key")


@experiments("lost-reply", places=PLACES, holes=HOLES, subjects=RETRIES)
def test_a_charge_whose_reply_was_lost_is_not_made_twice(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("lost-acquire", places=(REPLY,), subjects=("redis-py-lock",), scenario="lost-reply")
def test_a_lock_whose_reply_was_lost_costs_time_and_no_money(experiment: Result) -> None:
    """redis-py's default retries lock the worker out of its own lock until the lease has run out (recovery_s).

    That is no hole: nobody is charged twice, and nobody is forgotten. It costs a lease, or four with long-ttl's.
    """
    experiment.charged_exactly_once()
