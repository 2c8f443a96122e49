"""Tables on the terminal, the one line that sums a run up, the bound on a rate, merging and comparing."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
import sample_histories as h
import sample_runs
from sample_runs import experiment, run, subject

from harness import report
from harness.report import tables
from harness.report.compare import headline
from harness.report.tables import overview, recoveries


def _text(made: report.Run, **options: Any) -> str:
    return "\n".join(report.summary(made, **options))


@pytest.mark.parametrize("name", list(sample_runs.all_runs()))
@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    assert max(map(len, report.summary(sample_runs.all_runs()[name], width=width))) <= width


def test_a_declared_hole_reads_reproduced_and_an_undeclared_one_in_capitals() -> None:
    declared = experiment("a", verdict="double-charge", expected="double-charge", hole="why", events=[])
    undeclared = experiment("b", verdict="double-charge", events=[])
    closed = experiment("c", expected="double-charge", hole="why", events=[])
    never = experiment("d", verdict="no-charge", events=[])
    text = _text(run([declared, undeclared, closed, never]), width=200)
    assert re.search(r"a +double charge \(reproduced\)\n", text)
    assert re.search(r"b +DOUBLE CHARGE\n", text)
    assert re.search(r"c +ONE \(hole closed\)\n", text)
    assert re.search(r"d +NO CHARGE\n", text)
    assert "1 double charge that nobody declared; 1 customer never charged; 1 declared hole that did not show" in text


def test_a_cell_is_named_after_the_worst_of_its_places_a_double_charge_before_a_missing_one() -> None:
    none = experiment("x", place="a", verdict="no-charge", expected="no-charge", hole="why", events=[])
    double = experiment("x", place="b", verdict="double-charge", expected="double-charge", hole="why", events=[])
    for order in ([none, double], [double, none]):
        cell = overview(run([*order, experiment("x", place="c", events=[])])).cell("x", "slow-charge")
        assert cell is not None
        assert (cell.status.words, cell.count) == ("double charge (reproduced)", 1)


def test_colour_is_only_there_when_asked_for_and_changes_no_word() -> None:
    plain, coloured = _text(sample_runs.broken()), _text(sample_runs.broken(), color=True)
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_what_does_not_apply_or_is_unclear_leads_to_its_reason() -> None:
    assert "[1] PgBouncer is not installed here" in _text(sample_runs.passing())
    assert "inconclusive [1]" in _text(sample_runs.broken())


def test_the_sweep_shows_broken_rows_only_unless_all_are_asked_for() -> None:
    text, whole = _text(sample_runs.swept()), _text(sample_runs.swept(), all_rows=True)
    sentence = "charged twice at 6 of 40 fault points; first: freeze at processor.post-v1-charges.1.request"
    assert sentence in text
    assert "redis.get.1.reply" not in text
    assert "8 boundaries more, none with a failure" in text
    assert "redis.get.1.reply" in whole


def test_the_crash_table_has_the_recovery_beside_the_lease() -> None:
    text = _text(sample_runs.passing())
    assert re.search(r"naive-ttl +940 ms to 1\.04 s +1\.00 s +2 crashes", text)
    assert re.search(r"long-ttl +4\.04 s +4\.00 s +1 crash\n", text)
    assert re.search(r"pg-advisory +43 ms +none", text)


def test_only_the_crash_scenario_is_in_the_crash_table() -> None:
    """A lost reply to SET NX leaves the customer locked too, and a crash of the sweep is a crash: neither is of it."""
    lost = experiment("x", "lost-acquire", "reply", scenario="lost-reply", recovery_s=1.0)
    swept = experiment("y", "crash", "redis.get.1.reply", scenario="every-boundary", recovery_s=1.0)
    assert recoveries(run([lost, swept])) == []
    crashed = experiment("z", "crash", "charge-request", recovery_s=1.0)
    assert [row.subject for row in recoveries(run([lost, swept, crashed]))] == ["z"]


def test_margins_show_the_worst_gap_beside_the_lease() -> None:
    assert re.search(r"watchdog +351 ms +1\.00 s +35 % +42", _text(sample_runs.passing()))


def test_several_runs_give_violations_runs_and_the_bound() -> None:
    text = _text(sample_runs.repeated(300), width=120)
    assert re.search(r"watchdog +slow-charge +0 +300 +below 1\.0 %", text)
    assert re.search(r"naive-ttl +slow-charge +300 +300 +not bounded", text)
    assert "DOUBLE CHARGE, 1 of 300" in text
    assert "not of production" in text
    assert "Clopper" not in _text(sample_runs.passing())


@pytest.mark.parametrize(
    ("k", "n", "confidence", "bound"),
    [
        (0, 300, 0.95, 0.0099362),
        (0, 1, 0.95, 0.95),
        (0, 10, 0.95, 0.2588656),
        (1, 10, 0.95, 0.3941633),
        (5, 10, 0.95, 0.7775588),
        (9, 10, 0.95, 0.9948838),
        (10, 10, 0.95, 1.0),
        (2, 20, 0.975, 0.3169827),
    ],
)
def test_the_bound_is_the_exact_one(k: int, n: int, confidence: float, bound: float) -> None:
    assert report.clopper_pearson_upper(k, n, confidence) == pytest.approx(bound, abs=2e-7)


@pytest.mark.parametrize(
    ("k", "n", "confidence"), [(0, 0, 0.95), (-1, 5, 0.95), (6, 5, 0.95), (1, 5, 1.0), (1, 5, 0.0)]
)
def test_a_bound_on_nothing_is_refused(k: int, n: int, confidence: float) -> None:
    with pytest.raises(ValueError, match=r"runs|confidence"):
        report.clopper_pearson_upper(k, n, confidence)


def test_a_green_run_says_what_it_has_shown_and_that_it_shows_no_more() -> None:
    verdict = report.outcome(sample_runs.passing())
    assert verdict.green
    assert verdict.lead == "Green: all 54 experiments came out as declared."
    assert "38 times the fault landed, a second worker contended" in verdict.rest
    assert "15 declared double charges reproduced; 1 not applicable" in verdict.rest
    assert verdict.rest.endswith("It speaks of these faults, of no others.")


def test_a_run_that_shows_nothing_is_never_green() -> None:
    assert report.outcome(sample_runs.empty()).line == "Not green: nothing was run, so nothing was shown."
    nothing = [experiment("x", verdict="not-applicable", reason="no Redis", events=[]), experiment("y", events=[])]
    assert "nothing conclusive about x" in report.outcome(run(nothing)).line


def test_a_run_that_tried_no_fault_on_the_users_own_lock_is_never_green() -> None:
    """Whether -k left it out, or nothing that is left concerns it: a baseline is no trial, nor is the control's."""
    control = [experiment("naive-ttl", scenario="baseline", fault="none"), experiment("naive-ttl")]
    own = [
        experiment("mine", scenario="baseline", fault="none"),
        experiment("mine", verdict="not-applicable", events=[]),
    ]
    for experiments in (control, [*control, *own], [*control, *own[:1]]):
        tried = run(experiments)
        tried["subjects"] = [subject("naive-ttl"), subject("mine", kind="callable")]
        assert not report.outcome(tried).green
        assert "no fault was tried on mine" in report.outcome(tried).line
    assert report.outcome(run([*control, experiment("mine")])).green


def test_a_run_in_which_no_fault_concerned_anybody_is_never_green() -> None:
    nothing = [experiment("x", scenario="baseline", fault="none"), experiment("x", verdict="not-applicable", events=[])]
    assert "no fault was tried on anything" in report.outcome(run(nothing)).line
    interrupted = report.outcome(run([experiment("y", events=[])], partial=True))
    assert not interrupted.green
    assert "interrupted before it was through" in interrupted.line


def test_shards_merge_and_the_same_file_twice_counts_once() -> None:
    first, second = run([experiment("a", events=[])]), run([experiment("b", events=[])], partial=True)
    merged = report.merge([first, second, first], ["one", "two", "again"])
    assert [(e["subject"], e["source"]) for e in merged["experiments"]] == [("a", "one"), ("b", "two")]
    assert [s["name"] for s in merged["subjects"]] == ["a", "b"]
    assert merged["partial"]
    assert [source["name"] for source in merged["sources"]] == ["one", "two"]
    assert report.merge([first]) is first
    assert report.merge([first, first]) == first
    with pytest.raises(report.ResultsError, match="nothing to merge"):
        report.merge([])


def test_verdicts_that_differ_between_stacks_are_kept_apart_and_reported() -> None:
    merged = report.merge([sample_runs.passing(), sample_runs.compose()])
    same = [e for e in merged["experiments"] if e["id"] == "slow-charge/long-ttl/before-commit"]
    assert {e["source"]: e["verdict"] for e in same} == {"local": "exactly-one", "compose": "double-charge"}
    assert [item["id"] for item in merged["disagreements"]] == ["slow-charge/long-ttl/before-commit"]
    assert "came out differently in two runs" in report.outcome(merged).line


def test_a_merged_sweep_tells_its_sentence_anew() -> None:
    half = cast(Any, sample_runs.swept(("naive-ttl",)))
    other = cast(Any, sample_runs.swept(("naive-ttl",)))
    half["experiments"], other["experiments"] = half["experiments"][:20], other["experiments"][20:]
    for part in (half, other):
        part["sweep"] = {
            "naive-ttl": {"boundaries": sample_runs.BOUNDARIES, "faults": ["freeze"], "sentence": "of one shard"}
        }
    text = _text(report.merge([half, other], ["a", "b"]), width=140)
    assert "charged twice at 6 of 40 fault points" in text
    assert "of one shard" not in text


def test_a_comparison_goes_both_ways_and_names_what_came_and_went() -> None:
    before = run(
        [experiment("w", events=[]), experiment("b", verdict="double-charge", events=[]), experiment("gone", events=[])]
    )
    after = run(
        [experiment("w", verdict="double-charge", events=[]), experiment("b", events=[]), experiment("new", events=[])]
    )
    changes = report.compare(before, after)
    assert [(change.kind, change.id.split("/")[1]) for change in changes] == [
        ("worse", "w"), ("better", "b"), ("appeared", "new"), ("disappeared", "gone"),
    ]  # fmt: skip
    assert changes[0].line == "slow-charge/w/before-commit: exactly one charge -> double charge"
    assert headline(changes) == "1 verdict is worse, 1 verdict is better, 1 experiment is new, 1 experiment is gone"
    assert report.compare(before, before) == []
    assert headline([]) == "No verdict changed"


def test_a_hole_that_is_newly_declared_is_a_change_though_the_verdict_is_the_same() -> None:
    was = experiment("x", verdict="double-charge", events=[])
    now = experiment("x", verdict="double-charge", expected="double-charge", hole="why", events=[])
    changes = report.compare(run([was]), run([now]))
    assert [change.line for change in changes] == [
        "slow-charge/x/before-commit: double charge -> double charge (declared)"
    ]


def test_the_tables_follow_the_events_verdicts_not_their_order() -> None:
    mixed = run([experiment("b", place="two", events=h.slow_watchdog()), experiment("a", place="one", events=[])])
    text = _text(mixed, width=120)
    assert re.search(r"b +one\n", text)
    assert re.search(r"two +one\n", text)


def test_a_cell_of_many_experiments_looks_at_each_of_them_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell of the overview has every boundary's in it, fifty runs of each: looking at all for each took minutes."""
    looked = []
    real = tables.status

    def counting(experiment: report.Experiment) -> tables.Status:
        looked.append(1)
        return real(experiment)

    monkeypatch.setattr(tables, "status", counting)
    cell = tables.Cell(tuple(enumerate(sample_runs.thousand()["experiments"])))
    assert cell.words
    assert len(looked) <= 10 * len(cell.experiments)
