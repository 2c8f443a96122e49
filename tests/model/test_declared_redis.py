"""The holes declared in the scenarios of partitions and of Redis' losses are those that the model derives, both ways.

The scenarios are imported by name, here and nowhere else in this directory: the model itself knows nothing of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace

import pytest

from .assumptions import DEFAULT
from .programs import VARIANTS
from .queue import DOUBLE_CHARGE, EXACTLY_ONE, NO_CHARGE
from .tables import FAULT_PLACES, NOT_APPLICABLE, Cell, derive, outcome_of

SCENARIOS = ("partition", "redis_loss", "fencing_counter")
LET_GO = replace(DEFAULT, early_let_go=0.5)
"""In the control, redis-aof, A is let go half a lease after the strike, so that its lease does not run out."""


def declared(scenario: str) -> Mapping[Cell, str]:
    """What a scenario file expects of each variant at each fault and place."""
    module = importlib.import_module(f"scenarios.test_{scenario}")
    verdicts: dict[Cell, str] = {}
    for name, test in vars(module).items():
        for mark in getattr(test, "pytestmark", ()) if name.startswith("test_") else ():
            (fault,), wanted = mark.args, mark.kwargs
            unknown = {(v, p) for v, p in wanted["holes"] if v not in VARIANTS or p not in wanted["places"]}
            assert not unknown, f"{fault} declares holes of nobody, or at no place of its own: {unknown}"
            for variant in VARIANTS:
                for place in wanted["places"]:
                    hole = wanted["holes"].get((variant, place))
                    verdict = DOUBLE_CHARGE if isinstance(hole, str) else getattr(hole, "verdict", EXACTLY_ONE)
                    verdicts[variant, fault, place] = verdict
    return verdicts


def derived(cell: Cell) -> str:
    """What the model makes of the same cell; of both invoices for the counter, each delivered as often as queues do.

    The worker of the next invoice that is refused ends with status 0, so it is delivered once.
    """
    variant, fault, place = cell
    if not fault.startswith("counter-"):
        return derive(variant, fault, place, LET_GO if fault == "redis-aof" else DEFAULT)
    outcome = outcome_of(variant, fault, place)
    if not outcome.landed:
        return NOT_APPLICABLE
    both = {outcome.verdict, outcome.next_first}
    return next((verdict for verdict in (DOUBLE_CHARGE, NO_CHARGE) if verdict in both), EXACTLY_ONE)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_declares_the_holes_that_the_model_derives_and_no_others(scenario: str) -> None:
    expected = {cell: verdict for cell in declared(scenario) if (verdict := derived(cell)) != EXACTLY_ONE}
    holes = {cell: verdict for cell, verdict in declared(scenario).items() if verdict != EXACTLY_ONE}
    assert holes == {cell: verdict for cell, verdict in expected.items() if verdict != NOT_APPLICABLE}


def test_every_loss_and_partition_of_the_model_is_tried_in_a_scenario() -> None:
    """But for the two losses that the fencing counter survives."""
    tried = {(fault, place) for scenario in SCENARIOS for _, fault, place in declared(scenario)}
    modelled = {
        (fault, place)
        for fault, places in FAULT_PLACES.items()
        for place in places
        if fault.startswith(("partition-", "redis-", "counter-"))
    }
    survived = {fault for fault, _ in modelled - tried}
    assert tried <= modelled
    assert survived == {"counter-aof", "counter-early-expiry"}


def test_the_control_differs_from_a_restart_in_nothing_but_the_lock() -> None:
    """What redis-aof is for: every hole of redis-restart closes when the lock survives."""
    cells = declared("redis_loss")
    assert {verdict for (_, fault, _), verdict in cells.items() if fault == "redis-aof"} == {EXACTLY_ONE}
    assert {v for (v, fault, _), verdict in cells.items() if fault == "redis-restart" and verdict == DOUBLE_CHARGE}
