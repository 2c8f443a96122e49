"""The recorded histories of all broken subjects, judged again: the verdict must not drift from what was measured."""

from __future__ import annotations

import random
from typing import Any

import pytest

from harness import History, judge
from harness.spec import INCONCLUSIVE
from tests.broken.expected import BANK, DOUBLE, Broken
from tests.broken.record import load

_ALL = pytest.mark.parametrize("broken", BANK, ids=lambda broken: broken.name)


def _without(recorded: dict[str, Any], what: str) -> History:
    return History.from_json([event for event in recorded["events"] if event["what"] != what])


@_ALL
def test_a_recorded_history_is_judged_as_it_was(broken: Broken) -> None:
    recorded = load(broken)
    verdict = judge(History.from_json(recorded["events"]))
    assert (recorded["fault"], recorded["place"]) == broken.caught_by[1:]
    assert (verdict.kind, verdict.charges) == (broken.verdict, recorded["charges"])


@_ALL
def test_the_order_in_which_events_were_written_down_does_not_matter(broken: Broken) -> None:
    events = load(broken)["events"]
    random.Random(7).shuffle(events)
    assert judge(History.from_json(events)).kind == broken.verdict


@_ALL
def test_a_history_whose_money_was_never_counted_proves_nothing(broken: Broken) -> None:
    assert judge(_without(load(broken), "judged")).kind == INCONCLUSIVE


@_ALL
def test_a_ledger_that_is_not_read_never_makes_a_pass(broken: Broken) -> None:
    """Without its charges a double charge looks like none: never like exactly one."""
    if broken.verdict == DOUBLE:
        assert judge(_without(load(broken), "charge")).kind in (INCONCLUSIVE, "no-charge")
