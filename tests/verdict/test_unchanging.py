"""What must not change a verdict, what may change it in one direction only, and what must not be a pass."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model import judge as plain

from harness.history import WHAT, WITNESSES, Event, History
from harness.verdict import judge

from . import FIXED
from .stories import FLAWS, flawed, stories
from .story import BARE, FROZEN, Came, Row, Sent, Story, as_events, as_plain

SECOND = 7_000_000.25


@FIXED
@given(flawed())
def test_a_shift_of_all_times_changes_nothing(story: Story) -> None:
    events = as_events(story)
    for shift in (-250.0, SECOND):
        assert judge([replace(event, t_ms=event.t_ms + shift) for event in events]) == judge(events)


@FIXED
@given(flawed(), st.integers(0, 1_000_000))
def test_json_and_another_order_of_the_list_change_nothing(story: Story, seed: int) -> None:
    events = as_events(story)
    before = judge(events)
    told = json.loads(json.dumps(History(events).to_json()))
    assert judge(History.from_json(told)) == before
    random.Random(seed).shuffle(events)
    assert judge(events) == before


def test_what_json_rounds_away_decides_nothing() -> None:
    """B's message is less than a microsecond inside the window: after JSON it is not, and so it was not before."""
    goodbye = Event(1015.0004, "tap", "B", "request", {"boundary": "postgres.terminate.1.request"})
    events = [*as_events(BARE), goodbye]
    assert not judge(events).contended
    assert judge(History.from_json(History(events).to_json())) == judge(events)
    assert judge([*as_events(BARE), replace(goodbye, t_ms=1015.001)]).contended


# --- evidence ---

EVIDENCE = [
    ("landed", "fault"),
    ("fault-struck", "fault"),
    ("fault-lifted", "fault"),
    ("judged", "queue"),
    ("lock-granted", "A"),
    ("lock-granted", "B"),
    ("lock-expired", "A"),
    ("lock-released", "A"),
    ("lock-lost", "A"),
    ("request", "A"),
    ("request", "B"),
    ("request", "C"),
    *[(what, who) for what in ("delivered", "ended", "charge-arrived", "charge-committed", "charge") for who in "ABC"],
]

AGAINST = "stall server-died not-started harness-failed not-landed killed processor-restarted held".split()
"""What speaks against a verdict: without it there may be one."""


@FIXED
@given(flawed(at_most=2), st.sampled_from(EVIDENCE))
def test_taking_evidence_away_never_makes_a_pass(story: Story, kind: tuple[str, str]) -> None:
    events = as_events(story)
    left = [event for event in events if (event.what, event.who) != kind]
    if judge(left).kind == plain.EXACTLY_ONE:
        assert judge(events).kind == plain.EXACTLY_ONE


@FIXED
@given(flawed(at_most=1), st.data())
def test_an_event_that_got_lost_never_makes_a_pass(story: Story, data: st.DataObject) -> None:
    """Any one of them. B's own messages are left out: an answer that is missing looks like a wait."""
    events = as_events(story)
    doubts = (
        "stall",
        "server-died",
        "not-started",
        "harness-failed",
        "not-landed",
        "killed",
        "processor-restarted",
        "held",
    )
    evidence = [e for e in events if e.what not in doubts and not (e.who == "B" and e.what in ("request", "reply"))]
    lost = data.draw(st.sampled_from(evidence))
    if judge([event for event in events if event is not lost]).kind == plain.EXACTLY_ONE:
        assert judge(events).kind == plain.EXACTLY_ONE


@FIXED
@given(flawed(at_most=1), st.data())
def test_a_detail_that_got_lost_never_makes_a_pass_and_never_raises(story: Story, data: st.DataObject) -> None:
    events = as_events(story)
    one = data.draw(st.sampled_from([event for event in events if event.detail and event.what != "held"]))
    name = data.draw(st.sampled_from(sorted(one.detail)))
    poor = replace(one, detail={key: value for key, value in one.detail.items() if key != name})
    after = judge([poor if event is one else event for event in events])
    if after.kind == plain.EXACTLY_ONE and (one.what, name) not in (("killed", "delivery"), ("fault-struck", "fault")):
        assert judge(events).kind == plain.EXACTLY_ONE


NAMES = "boundary charge customer invoice amount currency ttl_ms delivery reason ms of token status fault".split()
details = st.dictionaries(
    st.sampled_from(NAMES),
    st.none() | st.integers(-5, 2000) | st.sampled_from(["A", "i-1", "processor.post-v1-charges.1.request", "none"]),
    max_size=5,
)
nonsense = st.builds(
    Event,
    st.integers(-10, 3000).map(float),
    st.sampled_from(sorted(WITNESSES)),
    st.sampled_from(["A", "B", "C", "fault", "queue", "?"]),
    st.sampled_from(sorted(WHAT)),
    details,
)


@FIXED
@given(st.lists(nonsense, max_size=25))
def test_nonsense_is_judged_without_raising_and_never_passes(events: list[Event]) -> None:
    assert judge(events).kind not in (plain.EXACTLY_ONE, plain.NO_CHARGE)


@FIXED
@given(stories(), st.lists(nonsense, max_size=4))
def test_nonsense_in_between_does_not_raise(story: Story, more: list[Event]) -> None:
    judge([*as_events(story), *more])


# --- the money ---


def with_another_charge(story: Story) -> Story:
    """A second charge of the invoice, and all that its witnesses saw of it."""
    at = max(row.at for row in story.ledger) + 40
    row = Row("ch-9", "C", at, None)
    return replace(
        story,
        ledger=(*story.ledger, row),
        log=(*story.log, row),
        came=(*story.came, Came("C", at - 5, None, "charge-committed")),
        sent=(*story.sent, Sent("C", at - 6, at + 1, charge=True, status=201)),
        judged=None if story.judged is None else max(story.judged, at + 2),
    )


DOUBTS = (
    "nothing landed", "only the injector saw it land", "it did not land", "no strike", "no end of the fault",
    "no end of a worker", "a worker that hung", "no last delivery", "a stall", "a dead server",
    "a processor that came back", "a worker that did not start", "two who hold the lock",
    "an arrival of which nothing came", "a lease that nobody saw end",
)  # fmt: skip
"""Flaws that cast doubt and do not mean that the harness itself is broken."""


@FIXED
@given(stories(), st.lists(st.sampled_from(DOUBTS), max_size=3), st.data())
def test_a_second_charge_is_a_double_charge_whatever_else_went_wrong(
    story: Story, doubts: list[str], data: st.DataObject
) -> None:
    if not story.ledger:
        return
    twice = with_another_charge(story)
    for name in doubts:
        twice = FLAWS[name](twice, data.draw)
    found = judge(as_events(twice))
    assert (found.kind, found.charges) == (plain.DOUBLE_CHARGE, len(twice.ledger))


@FIXED
@given(flawed(), st.data())
def test_a_harness_that_failed_concludes_nothing(story: Story, data: st.DataObject) -> None:
    assert judge(as_events(replace(story, failed=True))).kind == plain.INCONCLUSIVE
    assert judge(as_events(replace(story, judged=None))).kind == plain.INCONCLUSIVE


@FIXED
@given(flawed(at_most=1), st.sampled_from(["customer", "amount", "currency", "invoice"]), st.data())
def test_a_strange_charge_is_named_or_two_proper_ones_are(story: Story, field: str, data: st.DataObject) -> None:
    found = judge(as_events(FLAWS[f"a charge with a foreign {field}"](story, data.draw)))
    if story.ledger:
        assert found.kind in (plain.INCONCLUSIVE, plain.DOUBLE_CHARGE)


# --- the clock ---

skews = st.fixed_dictionaries({who: st.integers(-2, 2) for who in ("queue", "tap", "redis", "processor", "ledger")})


@FIXED
@given(
    stories(), st.fixed_dictionaries({w: st.integers(-2, 2) for w in ("queue", "tap", "redis", "processor", "ledger")})
)
def test_no_pass_rests_on_an_order_that_the_clocks_error_can_have_made(story: Story, skew: dict[str, int]) -> None:
    """Each witness's clock is off by 2 ms at most, so two of them by 4: what passes then was contended in truth."""
    events = [replace(event, t_ms=event.t_ms + skew.get(event.witness, 0)) for event in as_events(story)]
    if judge(events).kind == plain.EXACTLY_ONE:
        assert plain.contended(replace(as_plain(story), clock_error_ms=0.0))


@FIXED
@given(
    stories(), st.fixed_dictionaries({w: st.integers(-2, 2) for w in ("queue", "tap", "redis", "processor", "ledger")})
)
def test_the_clocks_error_contradicts_nobody(story: Story, skew: dict[str, int]) -> None:
    """What was double stays double: no witness is said to be broken for 4 ms."""
    events = [replace(event, t_ms=event.t_ms + skew.get(event.witness, 0)) for event in as_events(story)]
    if len(story.ledger) > 1:
        assert judge(events).kind == plain.DOUBLE_CHARGE


# --- what is not applicable ---

INAPPLICABLE = Event(0.0, "queue", "fault", "inapplicable", {"reason": "it uses no Redis"})


def test_an_experiment_that_was_not_run_is_not_applicable() -> None:
    assert judge([INAPPLICABLE]).kind == "not-applicable"
    assert judge([]).kind == plain.INCONCLUSIVE


@pytest.mark.parametrize("doubt", ["a dead server", "a stall", "a worker that did not start", "no end of a worker"])
def test_a_fault_is_not_said_to_be_inapplicable_by_a_run_that_was_disturbed(doubt: str) -> None:
    events = [replace(INAPPLICABLE, t_ms=1000.0)]
    assert judge([*as_events(FROZEN), *events]).kind == "not-applicable"
    spoilt = FLAWS[doubt](FROZEN, lambda _: FROZEN.workers[1])
    assert judge([*as_events(spoilt), *events]).kind == plain.INCONCLUSIVE
    twice = with_another_charge(FROZEN)
    assert judge([*as_events(twice), *events]).kind == plain.DOUBLE_CHARGE
