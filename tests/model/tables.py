"""The tables the model derives: every variant at every hand-picked fault and place, and at every boundary.

`python -m tests.model` prints them, with the reason for each hole and the cells that depend on an assumption.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

from .assumptions import DEFAULT, Assumptions
from .faults import (
    ChargeFails,
    Crash,
    Fault,
    Freeze,
    Hold,
    Lose,
    Partition,
    Point,
    Pooled,
    PostgresEnds,
    RedisLoses,
    SecondPostgres,
    Slow,
    WithChargeHeld,
)
from .machine import Side
from .programs import REPEATER, RETRIERS, VARIANTS, Design
from .queue import Outcome, run
from .rough_nights import ACQUIRE_REPLY, Busy, RoughAcquire, ThirdWorker

NOT_APPLICABLE = "not-applicable"
Cell = tuple[str, str, str]
"""(variant, fault, place)"""

SLOW_LEASES, SLOWER_LEASES = 2.5, 5.0
SLOW_PLACES = ("request-wire", "request-wire-of-a", "before-commit", "after-commit", "reply-wire", "slower-night")
POINTS = (
    *(f"{role}-{side}" for role in ("paid-read", "charge", "record") for side in ("request", "reply")),
    "release-request",
)
AT_CHARGE = ("charge-request", "charge-reply")
LOSSES = ("restart", "aof", "aof-cut", "flush", "eviction", "failover", "early-expiry")
POSTGRES_ENDS = ("terminated", "reset", "idle-session", "idle-in-transaction")
LOST_REPLIES = ("reset", "timeout", "500")
FAULT_PLACES: Mapping[str, tuple[str, ...]] = {
    "slow-charge": SLOW_PLACES,
    "freeze": POINTS,
    "crash": POINTS,
    **{f"partition-{kind}": AT_CHARGE for kind in ("late", "refused", "reset")},
    **{f"redis-{kind}": AT_CHARGE for kind in LOSSES},
    **{f"counter-{kind}": AT_CHARGE for kind in LOSSES},
    **{f"postgres-{kind}": AT_CHARGE for kind in POSTGRES_ENDS},
    "postgres-pooler": ("charge-request",),
    "postgres-second": ("charge-request",),
    "rough-acquire": ("request-lost", "reply-lost", "request-late", "reply-late"),
    "busy": ("charge-request",),
    "third-worker": ("acquire-reply", "paid-read-reply", "charge-request"),
}
EVERY = {"freeze": Freeze, "hold": Hold, "crash": Crash, "lose": Lose}
"""The faults of the sweep."""


def cells() -> Iterator[Cell]:
    """Every hand-picked cell of the eleven variants."""
    for fault, places in FAULT_PLACES.items():
        for place in places:
            for variant in VARIANTS:
                yield variant, fault, place


def derive(variant: str, fault: str, place: str, assume: Assumptions = DEFAULT) -> str:
    """The verdict of one hand-picked cell, not-applicable where the fault meets nothing of this design."""
    outcome = outcome_of(variant, fault, place, assume)
    return outcome.verdict if outcome.landed else NOT_APPLICABLE


@cache
def outcome_of(variant: str, fault: str, place: str, assume: Assumptions = DEFAULT) -> Outcome:
    """The whole outcome of one hand-picked cell."""
    with_next = fault.startswith("counter-")
    return run(VARIANTS[variant], _fault(VARIANTS[variant], fault, place), assume, with_next)


def derive_retry(subject: str, how: str) -> str:
    """A worker that retries its charge when the reply to it was lost: by a reset, by silence, or by a 500."""
    fault = Lose(("processor", "charge", 1, "reply")) if how == "reset" else ChargeFails(_BEHIND_COMMIT[how])
    return run(RETRIERS[subject], fault).verdict


def lost_acquire() -> Outcome:
    """redis-py's default retries and a lost reply to SET NX: the retry finds the worker's own key and is told no."""
    return run(REPEATER, Lose(("redis", "acquire", 1, "reply")))


def recovery_leases(variant: str) -> float | None:
    """How long the lock stayed taken after A was killed with its charge on the way, in leases."""
    outcome = outcome_of(variant, "crash", "charge-request")
    assert outcome.struck is not None
    return None if outcome.granted_next is None else outcome.granted_next - outcome.struck


def boundaries(variant: str, assume: Assumptions = DEFAULT) -> tuple[Point, ...]:
    """A's messages in a clean run, and those that come with its charge held for 1.2 leases."""
    design = VARIANTS[variant]
    clean = run(design, Fault(), assume).messages
    held = run(design, WithChargeHeld(Fault(("", "", 0, "request"))), replace(assume, charge_held=1.2)).messages
    return clean + tuple(point for point in held if point not in clean)


@cache
def sweep(variant: str, assume: Assumptions = DEFAULT) -> Mapping[tuple[str, Side, str], str]:
    """Every boundary of A x freeze, hold, crash, lose: {(step, side, fault): verdict}; a step is link.role.n."""
    found: dict[tuple[str, Side, str], str] = {}
    for point in boundaries(variant, assume):
        link, role, n, side = point
        for name, kind in EVERY.items():
            fault: Fault = kind(point)
            if role == "renew":
                fault = WithChargeHeld(fault)
            found[f"{link}.{role}.{n}", side, name] = run(VARIANTS[variant], fault, assume).verdict
    return found


def sweep_cells(variant: str, assume: Assumptions = DEFAULT) -> Mapping[Cell, str]:
    """The same as cells: the place is the boundary's whole name, link.role.n.side."""
    return {
        (variant, fault, f"{step}.{side}"): verdict for (step, side, fault), verdict in sweep(variant, assume).items()
    }


_BEHIND_COMMIT = {"timeout": "silence", "500": "error"}


def _fault(design: Design, fault: str, place: str) -> Fault:
    kind, _, detail = fault.partition("-")
    if fault == "slow-charge":
        return Slow("before-commit", SLOWER_LEASES) if place == "slower-night" else Slow(place, SLOW_LEASES)
    if fault == "rough-acquire":
        return RoughAcquire(place)
    if place == "acquire-reply":
        return ThirdWorker(ACQUIRE_REPLY)
    point = _point(design, place)
    if fault in ("busy", "third-worker"):
        return Busy(point) if fault == "busy" else ThirdWorker(point)
    if fault == "postgres-pooler":
        return Pooled(point)
    if fault == "postgres-second":
        return SecondPostgres(point)
    if kind in ("redis", "counter"):
        return RedisLoses(detail, point, with_counter=kind == "counter")
    if kind == "partition":
        return Partition(detail, point)
    if kind == "postgres":
        return PostgresEnds(detail, point)
    return EVERY[fault](point)


def _point(design: Design, place: str) -> Point:
    """The message a named place stands for: which server is asked differs from design to design."""
    role, _, side = place.rpartition("-")
    return next(point for point in _clean_messages(design) if point[1] == role and point[3] == side)


@cache
def _clean_messages(design: Design) -> tuple[Point, ...]:
    return run(design, Fault()).messages
