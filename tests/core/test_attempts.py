"""What is run again, and what stands."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.attempts import MOST_ATTEMPTS, Attempts, Entry
from harness.experiment import Outcome
from harness.history import History
from harness.spec import DOUBLE_CHARGE, EXACTLY_ONE, INCONCLUSIVE, NO_CHARGE, Spec
from harness.verdict import NO_FAULT, Verdict

CREWS = {
    name: SimpleNamespace(subject=SimpleNamespace(kind=kind))
    for name, kind in (("naive-ttl", "variant"), ("users-own", "callable"))
}


def again(
    kind: str, *, subject: str = "naive-ttl", landed: bool = True, stalled: bool = False, expected: str = EXACTLY_ONE,
    fault: str = "freeze", tries: int = 0, hung: bool = False, hung_before: bool = False,
    dead: str | None = None,
) -> bool:  # fmt: skip
    spec = Spec("freeze", subject, fault, "charge-reply", 1000)
    if expected != EXACTLY_ONE:
        spec = spec.expecting(expected, "known")
    history = History()
    if stalled:
        history.add("monitor", "queue", "stall", ms=400.0, of="a worker")
    before = History()
    for killed in [history] * hung + [before] * hung_before:
        killed.add("kernel", "A", "killed", processes=1, delivery=1)
    outcome = Outcome(spec, Verdict(kind, "why", 2, landed, True), history, [], 1.0)
    entry = Entry(spec, cast(Any, None), [replace(outcome, history=before)] * tries)
    nobody = cast(Any, None)
    attempts = Attempts(nobody, nobody, nobody, cast(Any, CREWS), lambda spec: 0, lambda: dead, print)
    return attempts.worth_repeating(entry, outcome)


def test_what_showed_nothing_runs_again_a_bounded_number_of_times() -> None:
    assert again(INCONCLUSIVE)
    assert again(INCONCLUSIVE, subject="users-own")
    assert not again(INCONCLUSIVE, tries=MOST_ATTEMPTS - 1)


def test_what_cannot_come_out_otherwise_does_not_run_again() -> None:
    assert not again(INCONCLUSIVE, dead="redis died with status -9"), "nobody starts a server of all again"
    assert not again(INCONCLUSIVE, fault=NO_FAULT, hung=True), "a worker that hangs with nothing wrong hangs again"
    assert not again(INCONCLUSIVE, fault=NO_FAULT, hung=True, stalled=True)
    assert again(INCONCLUSIVE, hung=True)
    assert again(INCONCLUSIVE, hung=True, tries=1), "it hangs for the first time"
    assert not again(INCONCLUSIVE, hung=True, hung_before=True, tries=1), "each time takes 30 leases"


@pytest.mark.parametrize(("stalled", "landed"), [(True, True), (False, False)])
def test_a_slow_machine_s_double_charge_runs_again_for_the_reference_and_never_for_a_user(
    stalled: bool, landed: bool
) -> None:
    assert again(DOUBLE_CHARGE, stalled=stalled, landed=landed)
    assert not again(DOUBLE_CHARGE, subject="users-own", stalled=stalled, landed=landed)


def test_a_double_charge_of_the_reference_stands_where_nothing_was_slow() -> None:
    assert not again(DOUBLE_CHARGE)


def test_a_declared_hole_stands_where_its_fault_landed_and_runs_again_where_it_did_not() -> None:
    assert not again(DOUBLE_CHARGE, expected=DOUBLE_CHARGE)
    assert not again(DOUBLE_CHARGE, expected=DOUBLE_CHARGE, stalled=True)
    assert again(DOUBLE_CHARGE, expected=DOUBLE_CHARGE, landed=False)


def test_what_nobody_expected_otherwise_stands() -> None:
    assert not again(NO_CHARGE)
    assert not again(EXACTLY_ONE, expected=DOUBLE_CHARGE)


def test_a_double_charge_without_any_fault_stands_unless_the_machine_stalled() -> None:
    assert not again(DOUBLE_CHARGE, subject="users-own", fault=NO_FAULT, landed=False)
    assert again(DOUBLE_CHARGE, subject="users-own", fault=NO_FAULT, landed=False, stalled=True)
