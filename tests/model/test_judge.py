"""The judge's rules, one by one and as properties: doubt never makes a pass and never hides a double charge."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .judge import (
    DOUBLE_CHARGE,
    EXACTLY_ONE,
    INCONCLUSIVE,
    NO_CHARGE,
    Arrival,
    Bill,
    Charge,
    History,
    Lease,
    contended,
    judge,
)

SOUND = History(
    ttl_ms=1000,
    charges=(Charge(at_ms=1150, who="B", token=2),),
    leases=(Lease("A", 10, 1010, token=1), Lease("B", 1100, 1200, token=2)),
    arrivals=(Arrival(1149, "B", 2), Arrival(1300, "A", 1)),
    contacts=(60, 500, 1100, 1150),
    let_go_ms=1250,
    landed_by=frozenset({"proc", "tap"}),
    injected_by="tap",
    committed=1,
)
"""A was frozen past its lease, B charged, A was refused."""
TWICE = (Charge(at_ms=1150, who="B", token=2), Charge(at_ms=1251, who="A", token=1))

DOUBTS = {
    "nobody else saw the fault land": {"landed_by": frozenset({"tap"})},
    "the machine stalled": {"stalled_ms": 251.0},
    "a server died": {"died": ("redis",)},
    "a worker could not start": {"unstarted": ("B",)},
    "the history is incomplete": {"missing": ("the processor's log",)},
    "the processor's log says another number": {"committed": 2},
    "two held one lock": {"leases": (Lease("A", 10, 1010), Lease("B", 900, 1200))},
    "a lease ended before it began": {"leases": (Lease("A", 10, 5), Lease("B", 1100, 1200))},
    "the charge never arrived": {"arrivals": (Arrival(1300, "A", 1),)},
    "a stale token was accepted": {"arrivals": (Arrival(1100, "C", 3), Arrival(1149, "B", 2))},
}
SPOILS = {"the harness misbehaved": {"misbehaved": "the tap forwarded what it held"}, "no ledger": {"charges": None}}


def test_one_charge_that_b_contended_for_is_exactly_one() -> None:
    assert judge(SOUND).verdict == EXACTLY_ONE


def test_no_charge_needs_no_contention() -> None:
    assert judge(replace(SOUND, charges=(), committed=0, contacts=())).verdict == NO_CHARGE


@pytest.mark.parametrize("change", DOUBTS.values(), ids=DOUBTS.keys())
def test_doubt_replaces_a_pass_and_never_a_double_charge(change: dict[str, object]) -> None:
    doubtful = replace(SOUND, **change)  # type: ignore[arg-type]
    assert judge(doubtful).verdict == INCONCLUSIVE
    assert judge(replace(doubtful, charges=TWICE)).verdict == DOUBLE_CHARGE


@pytest.mark.parametrize("change", SPOILS.values(), ids=SPOILS.keys())
def test_a_harness_that_misbehaved_decides_nothing(change: dict[str, object]) -> None:
    assert judge(replace(SOUND, **{"charges": TWICE, **change})).verdict == INCONCLUSIVE  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["customer", "invoice", "amount", "currency"])
def test_a_charge_of_another_kind_is_inconclusive_and_named(field: str) -> None:
    other = replace(Bill(), **{field: 1 if field == "amount" else "other"})  # type: ignore[arg-type]
    for charges in ((Charge(1150, "B", other, 2),), (Charge(1150, "B", token=2), Charge(1150, "B", other, 2))):
        found = judge(replace(SOUND, charges=charges, committed=len(charges)))
        assert (found.verdict, field in found.reason) == (INCONCLUSIVE, True)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"contacts": (1009,)}, False),
        ({"contacts": (1011,)}, True),
        ({"contacts": (1260,)}, False),
        ({"contacts": (1260,), "let_go_ms": None}, True),
        ({"contacts": (1011,), "clock_error_ms": 2.0}, False),
        ({"contacts": (1249,), "clock_error_ms": 2.0}, False),
        ({"leases": ()}, False),
    ],
)
def test_b_contends_after_the_lease_and_before_a_is_let_go(change: dict[str, object], expected: bool) -> None:
    assert contended(replace(SOUND, **change)) is expected  # type: ignore[arg-type]


def test_a_baseline_needs_no_fault_to_have_landed() -> None:
    assert judge(replace(SOUND, injected_by=None, landed_by=frozenset())).verdict == EXACTLY_ONE


def test_leases_that_overlap_within_the_clocks_error_contradict_nothing() -> None:
    close = replace(SOUND, leases=(Lease("A", 10, 1010), Lease("B", 1008, 1200)), clock_error_ms=3.0)
    assert judge(close).verdict == EXACTLY_ONE


times = st.floats(min_value=0, max_value=3000, allow_nan=False)
workers = st.sampled_from(["A", "B", "C"])
tokens = st.none() | st.integers(1, 4)
histories = st.builds(
    History,
    ttl_ms=st.just(1000.0),
    charges=st.none() | st.lists(st.builds(Charge, times, workers, token=tokens), max_size=3).map(tuple),
    leases=st.lists(st.builds(Lease, workers, times, times, tokens), max_size=4).map(tuple),
    arrivals=st.none() | st.lists(st.builds(Arrival, times, workers, tokens, st.booleans()), max_size=5).map(tuple),
    contacts=st.lists(times, max_size=4).map(tuple),
    let_go_ms=st.none() | times,
    landed_by=st.frozensets(st.sampled_from(["tap", "proc", "processor"])),
    injected_by=st.none() | st.sampled_from(["tap", "redis"]),
    committed=st.none() | st.integers(0, 3),
    stalled_ms=st.sampled_from([0.0, 250.0, 251.0]),
    clock_error_ms=st.sampled_from([0.0, 5.0]),
    died=st.sampled_from([(), ("redis",)]),
    misbehaved=st.none() | st.just("the tap broke"),
)


@given(histories)
def test_the_ledger_alone_says_whether_there_were_two(history: History) -> None:
    twice = history.charges is not None and history.misbehaved is None and len(history.charges) > 1
    assert (judge(history).verdict == DOUBLE_CHARGE) == twice


@given(histories, st.sampled_from([*DOUBTS.values(), *SPOILS.values()]))
def test_more_doubt_never_makes_a_pass(history: History, doubt: dict[str, object]) -> None:
    calm = {"landed_by", "injected_by", "leases", "arrivals", "committed"}
    added = {name: value for name, value in doubt.items() if name not in calm}
    before, after = judge(history).verdict, judge(replace(history, **added)).verdict  # type: ignore[arg-type]
    assert after in (before, INCONCLUSIVE)


@given(histories)
def test_what_passes_with_a_larger_clock_error_contends_with_a_smaller_one(history: History) -> None:
    if judge(replace(history, clock_error_ms=history.clock_error_ms + 50)).verdict == EXACTLY_ONE:
        assert history.charges is not None
        assert len(history.charges) == 1
        assert contended(history)
