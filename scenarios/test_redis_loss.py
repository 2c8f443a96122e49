"""Redis loses the lock while A's charge, or the reply to it, is under way. Each experiment has a Redis of its own.

A's message is held until B is through. redis-aof is the control: the lock survives, B asks for it in vain, and A is let
go before its lease runs out.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness import Result, experiments

REQUEST, REPLY = PLACES = ("charge-request", "charge-reply")

_UNLOCKED = "the lock is gone while A charges: B gets it at once, reads that nothing is paid, and charges too"
_SAME_TOKEN = (
    "the counter is gone with the lock, so B draws the token that A has: it is as new as A's, and both charges are "
    "accepted"
)
_SAME_TOKEN_READ = (
    "the counter is gone with the lock, so B draws the token that A has: its read finds no charge yet and does not "
    "make A's token stale, so both charges are accepted"
)
_NEWER_TOKEN = "the lock is gone after A's charge and before the record of it: B's token is newer, and is accepted too"
_NO_INTENT = "the intent is gone with everything else in Redis: B reserves anew, and charges under its own"

_UNFENCED = ("naive-ttl", "long-ttl", "watchdog")
_FENCED = ("fencing", "watchdog-fencing")


def _at(places: tuple[str, ...], subjects: tuple[str, ...], reason: str) -> Mapping[tuple[str, str], str]:
    return {(subject, place): reason for subject in subjects for place in places}


ALL_LOST = {
    **_at(PLACES, _UNFENCED, _UNLOCKED),
    **_at(PLACES, _FENCED, _SAME_TOKEN),
    ("fenced-read", REQUEST): _SAME_TOKEN_READ,
    **_at(PLACES, ("reserve-confirm-naive",), _NO_INTENT),
}
"""Whatever A wrote is gone: its lock, its token's counter (which begins at 1 again, and 1 is A's), its intent.

Why not elsewhere: fenced-read at the reply asks a processor that has A's charge on record; idempotency-key rests on the
processor alone. reserve-confirm holds no lock while it charges, the advisory locks are not in Redis: not applicable."""

LOCK_LOST = {
    **_at(PLACES, _UNFENCED, _UNLOCKED),
    **_at((REPLY,), _FENCED, _NEWER_TOKEN),
}
"""Only the lock is gone; the counter goes on, so B's token 2 makes A's 1 stale where that has not arrived yet. The
intent of reserve-confirm-naive does not expire, and it holds no lock while it charges: not applicable."""

NOTHING_LOST: Mapping[tuple[str, str], str] = {}
"""The lock survives, and B, which asks for it, is refused: every design that holds a lock holds."""


@experiments("redis-restart", places=PLACES, holes=ALL_LOST, scenario="redis-loss")
def test_a_lock_lost_in_a_restart_is_charged_exactly_once(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("redis-aof", places=PLACES, holes=NOTHING_LOST, scenario="redis-loss")
def test_a_lock_that_survives_in_the_append_only_file_is_charged_exactly_once(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("redis-aof-cut", places=PLACES, holes=ALL_LOST, scenario="redis-loss")
def test_a_lock_that_was_not_synced_before_a_power_loss_is_charged_exactly_once(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("redis-flush", places=PLACES, holes=ALL_LOST, scenario="redis-loss")
def test_a_lock_that_is_flushed_is_charged_exactly_once(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("redis-eviction", places=PLACES, holes=ALL_LOST, scenario="redis-loss")
def test_a_lock_that_is_evicted_is_charged_exactly_once(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("redis-failover", places=PLACES, holes=ALL_LOST, scenario="redis-loss")
def test_a_lock_that_the_promoted_replica_never_got_is_charged_exactly_once(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("redis-early-expiry", places=PLACES, holes=LOCK_LOST, scenario="redis-loss")
def test_a_lock_that_expires_early_is_charged_exactly_once(experiment: Result) -> None:
    experiment.charged_exactly_once()
