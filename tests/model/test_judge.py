"""The judge's rules, one by one and as properties: doubt never makes a pass and never hides a double charge."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .judge import (
    DOUBLE_CHARGE,
    EXACTLY_ONE,
    INCONCLUSIVE,
    NO_CHARGE,
    Arrival,
    Bill,
    Charge,
    Departure,
    History,
    Lease,
    contended,
    judge,
)

SOUND = History(
    ttl_ms=1000,
    charges=(Charge(at_ms=1150, who="B", token=2),),
    log=(Charge(at_ms=1150, who="B", token=2),),
    leases=(Lease("A", 10, 1010, token=1), Lease("B", 1100, 1200, token=2)),
    arrivals=(Arrival(1149, "B", 2), Arrival(1300, "A", 1)),
    departures=(Departure(50, "A"), Departure(1148, "B")),
    contacts=((60, 61), (500, 501), (1100, 1101), (1150, 1151)),
    struck_ms=50,
    let_go_ms=1250,
    landed_by=frozenset({"proc", "tap"}),
    injected_by="tap",
    clean_ms=11_500,
)
"""A was frozen past its lease, B charged, A was refused."""
TWICE = (Charge(at_ms=1150, who="B", token=2), Charge(at_ms=1301, who="A", token=2, id="ch-2"))

DOUBTS: dict[str, dict[str, object]] = {
    "nobody else saw the fault land": {"landed_by": frozenset({"tap"})},
    "nobody knows when the fault struck": {"struck_ms": None},
    "nobody knows when A was let go": {"let_go_ms": None},
    "A was let go before the fault struck": {"let_go_ms": 40.0},
    "C never came": {"clean_ms": None},
    "the machine stalled": {"stalled_ms": 251.0},
    "a server died": {"died": ("redis",)},
    "a worker could not start": {"unstarted": ("B",)},
    "the history is incomplete": {"missing": ("the end of B",)},
    "two held one lock": {"leases": (Lease("A", 10, 1010), Lease("B", 900, 1200))},
    "a lease ended before it began": {"leases": (Lease("A", 10, 5), Lease("B", 1100, 1200))},
    "a charge is in flight": {"arrivals": (Arrival(1149, "B", 2), Arrival(1300, "A", 1, decided=False))},
    "a charge is on its way": {
        "departures": (Departure(50, "A"), Departure(60, "A", answered=False), Departure(0, "B"))
    },
}
SPOILS: dict[str, dict[str, object]] = {
    "the harness misbehaved": {"misbehaved": "the tap forwarded what it held"},
    "no ledger": {"charges": None},
    "the processor's log says another number": {"log": ()},
    "the processor's log says another worker": {"log": (Charge(at_ms=1150, who="A", token=2),)},
    "the processor's log says another time": {"log": (Charge(at_ms=1151, who="B", token=2),)},
    "the charge never arrived": {"arrivals": (Arrival(1300, "A", 1),)},
    "the charge arrived before it left": {"departures": (Departure(50, "A"), Departure(1150, "B"))},
    "A was told of a charge that is not there": {
        "departures": (Departure(50, "A", told_ms=1400), Departure(1148, "B"))
    },
    "B was told of its charge before it was made": {
        "departures": (Departure(50, "A"), Departure(1148, "B", told_ms=1149))
    },
    "the charge arrived past the tap": {"departures": (Departure(50, "A"),)},
    "a stale token was accepted": {"arrivals": (Arrival(1100, "C", 3, is_charge=False), Arrival(1149, "B", 2))},
}


def test_one_charge_that_b_contended_for_is_exactly_one() -> None:
    assert judge(SOUND).verdict == EXACTLY_ONE


def test_no_charge_needs_no_contention() -> None:
    assert judge(replace(SOUND, charges=(), log=(), contacts=(), hung=("C",))).verdict == NO_CHARGE


@pytest.mark.parametrize(("clean_ms", "expected"), [(None, INCONCLUSIVE), (10_999, INCONCLUSIVE), (11_000, NO_CHARGE)])
def test_no_charge_needs_c_to_have_come_for_long(clean_ms: float | None, expected: str) -> None:
    assert judge(replace(SOUND, charges=(), log=(), clean_ms=clean_ms)).verdict == expected


def test_a_worker_that_had_to_be_ended_may_have_charged_later() -> None:
    assert judge(replace(SOUND, hung=("B",))).verdict == INCONCLUSIVE


@pytest.mark.parametrize("change", DOUBTS.values(), ids=DOUBTS.keys())
def test_doubt_replaces_a_pass_and_never_a_double_charge(change: dict[str, object]) -> None:
    doubtful = replace(SOUND, **change)  # type: ignore[arg-type]
    assert judge(doubtful).verdict == INCONCLUSIVE
    assert judge(replace(doubtful, charges=TWICE, log=TWICE)).verdict == DOUBLE_CHARGE


@pytest.mark.parametrize("change", SPOILS.values(), ids=SPOILS.keys())
def test_a_harness_that_misbehaved_decides_nothing(change: dict[str, object]) -> None:
    assert judge(replace(SOUND, **{"charges": TWICE, **change})).verdict == INCONCLUSIVE  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["customer", "invoice", "amount", "currency"])
def test_a_charge_of_another_kind_is_inconclusive_and_named(field: str) -> None:
    other = replace(Bill(), **{field: 1 if field == "amount" else "other"})  # type: ignore[arg-type]
    for charges in ((Charge(1150, "B", other, 2),), (Charge(1150, "B", token=2), Charge(1150, "B", other, 2, "ch-2"))):
        found = judge(replace(SOUND, charges=charges, log=None, arrivals=None))
        assert (found.verdict, field in found.reason) == (INCONCLUSIVE, True)


def test_two_proper_charges_stay_two_beside_a_strange_one() -> None:
    strange = Charge(1150, "B", Bill(amount=1), 2, id="ch-3")
    assert judge(replace(SOUND, charges=(*TWICE, strange), log=None, arrivals=None)).verdict == DOUBLE_CHARGE


BARE = replace(SOUND, leases=(Lease("A", 10),))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"contacts": ((1009, 1010),)}, False),
        ({"contacts": ((1009, 1011),)}, True),
        ({"contacts": ((1260, 1261),)}, False),
        ({"contacts": ((1260, 1261),), "let_go_ms": None}, False),
        ({"contacts": ((1011, 1012),), "clock_error_ms": 3.0}, False),
        ({"contacts": ((1249, 1300),), "clock_error_ms": 2.0}, False),
        ({"contacts": ((0, 5000),)}, True),
        ({"contacts": ()}, False),
        ({"contacts": (), "leases": (Lease("A", 10, 90), Lease("B", 100, 120))}, True),
        ({"contacts": ((100, 101),), "leases": (Lease("A", 10, 90),)}, True),
        ({"contacts": ((30, 31),), "leases": (Lease("A", 10, 20),)}, False),
        ({"contacts": ((100, 101),), "leases": (Lease("A", 10, 30, released=True),)}, False),
        ({"contacts": ((1011, 1012),), "leases": (Lease("A", 10, 30, released=True),)}, True),
        ({"contacts": ((100, 101),), "leases": (Lease("A", 10, 70, released=True),)}, True),
        ({"contacts": ((100, 101),), "leases": (), "misses_short_locks": True}, True),
        ({"contacts": ((1049, 1050),), "leases": ()}, False),
        ({"contacts": ((1049, 1051),), "leases": ()}, True),
        ({"contacts": (), "leases": (Lease("B", 60, 70),)}, True),
        ({"contacts": (), "leases": (Lease("B", 40, 70),)}, False),
    ],
)
def test_b_contends_once_the_lock_cannot_keep_it_out_and_before_a_is_let_go(
    change: dict[str, object], expected: bool
) -> None:
    assert contended(replace(BARE, **change)) is expected  # type: ignore[arg-type]


def test_a_baseline_needs_no_fault_to_have_landed() -> None:
    assert judge(replace(SOUND, injected_by=None, landed_by=frozenset())).verdict == EXACTLY_ONE


def test_leases_that_overlap_within_the_clocks_error_contradict_nothing() -> None:
    close = replace(SOUND, leases=(Lease("A", 10, 1010), Lease("B", 1008, 1200)), clock_error_ms=3.0)
    assert judge(close).verdict == EXACTLY_ONE


FIXED = settings(derandomize=True, deadline=None)
times = st.floats(min_value=0, max_value=3000, allow_nan=False)
workers = st.sampled_from(["A", "B", "C"])
tokens = st.none() | st.integers(1, 4)
charges = st.lists(
    st.builds(Charge, times, workers, token=tokens, id=st.sampled_from(["ch-1", "ch-2", "ch-3"])), max_size=3
).map(tuple)
histories = st.builds(
    History,
    ttl_ms=st.just(1000.0),
    charges=st.none() | charges,
    log=st.none() | charges,
    leases=st.lists(st.builds(Lease, workers, times, times, tokens), max_size=4).map(tuple),
    arrivals=st.none() | st.lists(st.builds(Arrival, times, workers, tokens, st.booleans()), max_size=5).map(tuple),
    contacts=st.lists(st.tuples(times, times), max_size=4).map(tuple),
    let_go_ms=st.none() | times,
    landed_by=st.frozensets(st.sampled_from(["tap", "proc", "processor"])),
    injected_by=st.none() | st.sampled_from(["tap", "redis"]),
    clean_ms=st.none() | st.sampled_from([10_999.0, 11_000.0]),
    stalled_ms=st.sampled_from([0.0, 250.0, 251.0]),
    clock_error_ms=st.sampled_from([0.0, 5.0]),
    died=st.sampled_from([(), ("redis",)]),
    misbehaved=st.none() | st.just("the tap broke"),
)


@FIXED
@given(histories)
def test_only_the_ledger_says_that_there_were_two(history: History) -> None:
    verdict = judge(history).verdict
    if history.charges is None or history.misbehaved is not None:
        assert verdict == INCONCLUSIVE
    elif len(history.charges) < 2:
        assert verdict != DOUBLE_CHARGE
    else:
        assert verdict in (DOUBLE_CHARGE, INCONCLUSIVE)


CALM = ("landed_by", "leases", "arrivals", "departures", "log", "clean_ms")


@FIXED
@given(histories, st.sampled_from([*DOUBTS.values(), *SPOILS.values()]))
def test_more_doubt_never_makes_a_pass(history: History, doubt: dict[str, object]) -> None:
    added = {name: value for name, value in doubt.items() if name not in CALM}
    before, after = judge(history).verdict, judge(replace(history, **added)).verdict  # type: ignore[arg-type]
    assert after in (before, INCONCLUSIVE)


@FIXED
@given(histories)
def test_a_pass_has_one_charge_and_contention(history: History) -> None:
    if judge(history).verdict == EXACTLY_ONE:
        assert history.charges is not None
        assert len(history.charges) == 1
        assert contended(history)
