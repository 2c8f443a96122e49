"""The holes declared in the scenarios of workers, charges and sessions are those that the model derives, both ways.

The scenarios are imported by name, here and in test_declared_redis.py: the model itself knows nothing of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import pytest

from .faults import ChargeFails, Fault, Lose
from .programs import VARIANTS
from .queue import DOUBLE_CHARGE, EXACTLY_ONE, run
from .tables import FAULT_PLACES, LOST_REPLIES, NOT_APPLICABLE, Cell, derive, derive_retry, lost_acquire

SCENARIOS = {
    "slow_charge": ("slow-charge",),
    "freeze": ("freeze",),
    "crash": ("crash",),
    "third_worker": ("third-worker",),
    "rough_acquire": ("rough-acquire",),
    "busy": ("busy",),
    "postgres_sessions": (
        "postgres-terminated",
        "postgres-reset",
        "postgres-idle-session",
        "postgres-idle-in-transaction",
        "postgres-pooler",
        "postgres-second",
    ),
}
RETRIERS = {
    "retry-no-key": "retry-without-key",
    "retry-fresh-key": "retry-fresh-key",
    "retry-invoice-key": "retry-invoice-key",
}
"""The subjects of the lost reply, by name in the scenario and in the model."""
LOST = {"reset": "reset", "no-answer": "timeout", "error-500": "500"}


def marks(scenario: str) -> list[pytest.Mark]:
    """What a scenario file declares: one mark for each of its tests."""
    module = importlib.import_module(f"scenarios.test_{scenario}")
    return [
        mark
        for name, test in vars(module).items()
        for mark in getattr(test, "pytestmark", ())
        if name.startswith("test_") and mark.name == "experiments"
    ]


def expected(mark: pytest.Mark, subject: str, place: str) -> str:
    hole = mark.kwargs["holes"].get((subject, place))
    return DOUBLE_CHARGE if isinstance(hole, str) else getattr(hole, "verdict", EXACTLY_ONE)


def declared(scenario: str) -> Mapping[Cell, str]:
    """What a scenario file expects of each variant at each fault and place."""
    return {
        (variant, mark.args[0], place): expected(mark, variant, place)
        for mark in marks(scenario)
        for variant in VARIANTS
        for place in mark.kwargs["places"]
    }


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_declares_the_holes_that_the_model_derives_and_no_others(scenario: str) -> None:
    cells = declared(scenario)
    holes = {cell: verdict for cell, verdict in cells.items() if verdict != EXACTLY_ONE}
    assert holes == {cell: v for cell in cells if (v := derive(*cell)) not in (EXACTLY_ONE, NOT_APPLICABLE)}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_tries_every_fault_and_place_of_the_model_and_every_variant(scenario: str) -> None:
    for mark in marks(scenario):
        assert mark.kwargs["subjects"] is None, "every variant is tried"
        assert set(mark.kwargs["holes"]) <= {(v, p) for v in VARIANTS for p in mark.kwargs["places"]}
    tried = {(fault, place) for _, fault, place in declared(scenario)}
    assert tried == {(fault, place) for fault in SCENARIOS[scenario] for place in FAULT_PLACES[fault]}


def test_a_lost_reply_doubles_for_those_that_the_model_says_and_no_others() -> None:
    charge, _ = marks("lost_reply")
    assert set(charge.kwargs["subjects"]) == set(RETRIERS)
    assert [LOST[place] for place in charge.kwargs["places"]] == list(LOST_REPLIES)
    for subject, modelled in RETRIERS.items():
        for place, how in LOST.items():
            assert expected(charge, subject, place) == derive_retry(modelled, how), (subject, place)


def test_the_control_of_a_lost_reply_has_the_hole_that_the_model_derives() -> None:
    """But for no-answer: the model's naive-ttl waits for ever. On paper its lease runs out meanwhile, and B charges."""
    charge, _ = marks("lost_reply")
    faults: dict[str, Fault] = {"reset": Lose(("processor", "charge", 1, "reply")), "error-500": ChargeFails("error")}
    for place, fault in faults.items():
        assert expected(charge, "naive-ttl", place) == run(VARIANTS["naive-ttl"], fault).verdict, place


def test_a_lost_reply_to_set_nx_is_no_hole_and_costs_a_lease() -> None:
    _, acquire = marks("lost_reply")
    outcome = lost_acquire()
    assert expected(acquire, "redis-py-lock", "reply") == outcome.verdict == EXACTLY_ONE
    assert not acquire.kwargs["holes"]
    assert outcome.struck is not None
    assert outcome.charges[0][0] - outcome.struck > 0.9
