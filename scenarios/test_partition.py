"""Worker A is cut off from Redis, and from nothing else, from its charge on: held, refused or reset until B is through.

The charge itself goes through: A's link to the processor is whole. So a fencing token does not help where it helps a
worker that is frozen at its charge's request: A's token is at the processor before B's.
"""

from __future__ import annotations

from harness import Result, experiments

PLACES = ("charge-request", "charge-reply")

_UNRECORDED = (
    "the charge goes through, the record of it does not reach Redis: the lease runs out, B reads that nothing is paid, "
    "and charges too"
)
_UNRENEWED = (
    "the charge goes through, but neither a renewal nor the record of it reaches Redis: the lease runs out, B reads "
    "that nothing is paid, and charges too"
)
_NEWER_TOKEN = (
    "the charge goes through, the record of it does not reach Redis: the lease runs out, and B's token is newer, so "
    "its charge is accepted too"
)
_REASONS = {
    "naive-ttl": _UNRECORDED,
    "long-ttl": _UNRECORDED,
    "watchdog": _UNRENEWED,
    "fencing": _NEWER_TOKEN,
    "watchdog-fencing": _NEWER_TOKEN,
}

HOLES = {(subject, place): reason for subject, reason in _REASONS.items() for place in PLACES}
"""The same for all three: to the lock it makes no difference how A's messages fail to arrive.

Why not elsewhere: fenced-read asks the processor, which knows A's charge; idempotency-key makes it refuse a second one;
reserve-confirm-naive leaves its intent in Redis, which B finds. reserve-confirm needs Redis no more by then, and the
advisory locks never do: not applicable."""


@experiments("partition-late", places=PLACES, holes=HOLES, scenario="partition")
def test_a_worker_whose_messages_to_redis_come_late_charges_exactly_once(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("partition-refused", places=PLACES, holes=HOLES, scenario="partition")
def test_a_worker_that_redis_refuses_charges_exactly_once(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("partition-reset", places=PLACES, holes=HOLES, scenario="partition")
def test_a_worker_whose_connections_to_redis_are_reset_charges_exactly_once(experiment: Result) -> None:
    experiment.charged_exactly_once()
