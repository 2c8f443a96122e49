"""The longest gap between renewals: of the worker, not of a harness that was late to ask the server."""

from __future__ import annotations

import itertools

import pytest
import recordings
import sample_histories as h

from harness.history import Event, History
from harness.margins import margin


def _history(name: str) -> History:
    return History.from_json(recordings.load(name)["events"])


def _noted_gaps(history: History) -> list[float]:
    marks = [e for e in history if e.who == "A" and e.what in ("lock-granted", "lock-renewed")]
    return [later.t_ms - earlier.t_ms for earlier, later in itertools.pairwise(marks)]


@pytest.mark.parametrize(
    ("name", "noted_ms", "renewals", "worst_ms"),
    [
        ("steady", 402.0, 7, 352.4),
        # The lease of the grant was asked for after the third renewal: as the server accounts for it there is no first.
        ("late-account-of-the-grant", 1098.6, 14, 387.0),
        # One answer of the server's told of two renewals.
        ("late-account-of-a-renewal", 837.1, 14, 377.3),
    ],
)
def test_a_gap_is_between_renewals_as_they_passed_not_as_the_harness_asked_for_them(
    name: str, noted_ms: float, renewals: int, worst_ms: float
) -> None:
    history = _history(name)
    assert max(_noted_gaps(history)) == pytest.approx(noted_ms, abs=0.1)
    found = margin([history])
    assert found is not None
    assert (found["renewals"], found["worst_gap_ms"]) == (renewals, worst_ms)
    assert 995 <= found["lease_ms"] <= 1000


def test_a_renewal_that_did_not_come_is_a_gap() -> None:
    """Three renewals of the steady one are taken away: the gap is as long as four."""
    skipped = ("redis.eval-0a4b.3.", "redis.eval-0a4b.4.", "redis.eval-0a4b.5.")
    kept = [e for e in _history("steady") if not str(e.detail.get("boundary", "")).startswith(skipped)]
    found = margin([History(kept, started_ns=0)])
    assert found is not None
    assert 1300 < found["worst_gap_ms"] < 1450


def test_a_worker_that_takes_and_renews_with_one_command_is_measured_by_its_leases() -> None:
    renamed = [
        {**event, "boundary": str(event["boundary"]).replace("eval-0a4b", "set")} if "boundary" in event else event
        for event in recordings.load("steady")["events"]
    ]
    found = margin([History.from_json(renamed)])
    assert found is not None
    assert found["renewals"] == 7
    assert 330 < found["worst_gap_ms"] < 420


def test_the_worst_of_several_histories_counts_and_gaps_of_b_do_not() -> None:
    histories = [_history("steady"), _history("late-account-of-the-grant")]
    both = margin(histories)
    assert both is not None
    assert (both["renewals"], both["worst_gap_ms"]) == (21, 387.0)
    only_b = [Event(e.t_ms, e.witness, "B", e.what, e.detail) for e in histories[0] if e.who == "A"]
    assert margin([History(only_b, started_ns=0)]) is None


def test_without_renewals_there_is_no_margin() -> None:
    assert margin([History.from_json(h.slow_double())]) is None
    assert margin([]) is None
