"""Timeline, sentence and paragraph: right for every way an experiment can go."""

from __future__ import annotations

import re

import pytest
import recordings
import sample_histories as h
import sample_runs
from sample_runs import experiment

from harness import report
from harness.report import words
from harness.report.drawing import drawing
from harness.report.facts import facts
from harness.report.results import Experiment
from harness.report.story import told

PAID = "for invoice inv_2041 (19.99 EUR)"


@pytest.mark.parametrize(
    ("events", "says"),
    [
        (
            h.slow_double(),
            f"The customer was charged twice {PAID}: by A at 2.50 s and B at 3.55 s, 1.05 s apart; "
            "A's lease had expired 1.50 s before its charge was committed.",
        ),
        (
            h.slow_after_commit(),
            f"The customer was charged twice {PAID}: by A with token 7 at 7 ms and B with token 8 at 1.05 s, "
            "1.05 s apart; A's lease had expired 996 ms after its charge.",
        ),
        (
            h.frozen(tokens=False),
            f"The customer was charged twice {PAID}: by B at 1.05 s and A at 1.07 s, 15 ms apart; "
            "A's lease had expired 67 ms before its charge was committed.",
        ),
        (
            h.lock_lost(),
            f"The customer was charged twice {PAID}: by B at 19 ms and A at 1.10 s, 1.08 s apart; "
            "A's lock had been lost 1.10 s before its charge was committed.",
        ),
        (
            h.crashed_after_charge(),
            f"The customer was charged twice {PAID}: by A at 8 ms and B at 1.05 s, 1.04 s apart; "
            "A was killed 1 ms after its charge, and 994 ms later its lease had expired.",
        ),
        (
            h.retried(),
            f"The customer was charged twice {PAID}: by A alone, at 8 ms and at 63 ms, 55 ms apart, "
            "under the same lock.",
        ),
    ],
)
def test_a_double_charge_is_told_with_who_when_how_far_apart_and_what_became_of_the_lease(
    events: h.Events, says: str
) -> None:
    assert report.sentence(experiment("x", verdict="double-charge", events=events)) == says


def test_exactly_one_charge_is_told_with_the_one_that_was_refused() -> None:
    assert report.sentence(experiment("x", events=h.frozen(tokens=True))) == (
        f"The customer was charged exactly once {PAID}: by B with token 8 at 1.05 s; "
        "A's charge with token 7 was refused at 1.07 s (stale fencing token)."
    )
    assert report.sentence(experiment("x", events=h.slow_watchdog())).endswith(": by A at 2.50 s.")


def test_a_missing_charge_is_told_with_the_end_of_every_worker() -> None:
    assert report.sentence(experiment("x", verdict="no-charge", events=h.never_charged())) == (
        f"The customer was never charged {PAID}: A was killed at 6 ms, B ended with status 0 without a charge and "
        "C ended with status 0 without a charge."
    )


def test_a_verdict_on_the_next_invoice_is_told_of_that_one() -> None:
    e = recordings.load("counter-begins-again")
    assert (e["verdict"], e["charges"]) == ("no-charge", 1)
    assert report.sentence(e) == (
        "The customer was never charged for the next invoice, inv-c669b0-00179-next (42.00 EUR): C's charge with token "
        "3 was refused (stale fencing token)."
    )
    assert "The invoice before it, inv-c669b0-00179, was charged once: by A with token 9 at 489 ms." in (
        report.paragraph(e)
    )


def test_charges_are_counted_by_invoice() -> None:
    e = recordings.load("counter-set-back")
    assert (e["verdict"], e["charges"]) == ("double-charge", 2)
    assert report.sentence(e) == (
        "The customer was charged twice for invoice inv-c669b0-00183 (42.00 EUR): by B with token 9 at 267 ms and A "
        "with token 9 at 297 ms, 31 ms apart; A's lock had been lost 148 ms before its charge was committed."
    )
    next_one = "The customer's next invoice, inv-c669b0-00183-next, was charged once: by C with token 11 at 452 ms."
    assert next_one in report.paragraph(e)
    text = report.timeline(e)
    assert "is given the customer's next invoice, inv-c669b0-00183-next" in text
    assert "holds one charge for inv-c669b0-00183-next: ch_744d3bd6c263d80458060d57" in text
    coins = drawing(e)["coins"]
    assert [(coin["who"], coin["n"], coin.get("next")) for coin in coins] == [
        ("B", 1, None), ("A", 2, None), ("C", 1, "inv-c669b0-00183-next"),
    ]  # fmt: skip


def test_what_is_inconclusive_or_does_not_apply_says_why_and_claims_nothing() -> None:
    stalled = experiment("x", verdict="inconclusive", events=h.stalled(), reason="the machine stood still.")
    assert report.sentence(stalled) == (
        "Nothing can be concluded: the machine stood still (the ledger holds 1 charge)."
    )
    absent = experiment("x", verdict="not-applicable", events=[], reason="uses no Redis")
    assert report.sentence(absent) == "Does not apply: uses no Redis."


@pytest.mark.parametrize("verdict", ["double-charge", "exactly-one", "no-charge", "inconclusive", "not-applicable"])
def test_without_events_the_sentence_says_only_what_the_ledger_says(verdict: str) -> None:
    told = report.sentence(experiment("x", verdict=verdict, events=[]))
    assert "A" not in re.findall(r"\b[ABC]\b", told)
    assert told.endswith(".")
    assert report.timeline(experiment("x", verdict=verdict, events=[])) == "(no events were recorded)"


def test_a_report_that_is_drawn_again_tells_what_the_events_say_and_the_runs_own_sentence_only_without_them() -> None:
    e = experiment("x", verdict="double-charge", events=h.slow_double(), sentence="An older version's words.")
    assert told(e) == report.sentence(e)
    assert dict(report.properties(e))["sentence"] == report.sentence(e)
    bare = experiment("x", verdict="double-charge", events=[], sentence="An older version's words.")
    assert told(bare) == "An older version's words."


def test_the_number_of_charges_is_the_ledgers_even_where_the_events_show_fewer() -> None:
    events = [event for event in h.slow_double() if event["what"] not in ("charge-committed", "charge")]
    told = report.sentence(experiment("x", verdict="double-charge", events=events, charges=3))
    assert told.startswith("The customer was charged 3 times")


def test_a_charge_answered_again_by_its_key_is_no_second_charge() -> None:
    events = h.slow_watchdog()
    events.append({"t_ms": 2575.0, "witness": "processor", "who": "B", "what": "charge-replayed", "key": "inv_2041"})
    told = report.sentence(experiment("x", events=events))
    assert told.endswith("by A at 2.50 s; B was given that same charge again at 2.58 s, by its key.")


def test_the_paragraph_adds_the_fault_the_leases_and_the_hole() -> None:
    e = experiment(
        "x", verdict="double-charge", expected="double-charge", hole="nothing renews", events=h.frozen(tokens=False)
    )
    told = report.paragraph(e)
    assert "A was frozen for 1.06 s." in told
    assert "A had the lock from 2 ms, until its lease ran out at 1.00 s." in told
    assert report.sentence(e) in told
    assert told.endswith("A known hole: nothing renews.")
    undeclared = experiment("x", verdict="double-charge", events=h.frozen(tokens=False))
    assert report.paragraph(undeclared).endswith("Expected: exactly one charge.")


def test_the_timeline_tells_grant_token_lease_polls_expiry_and_charges_in_order() -> None:
    text = report.timeline(experiment("x", events=h.frozen(tokens=True)))
    wanted = [
        "A          is given the job",
        "granted to A, token 7, lease 1.00 s",
        "A          is frozen: every thread seen stopped",
        "B          asks for the lock 13 times, until 968 ms",
        "A's lease has EXPIRED",
        "granted to B, token 8",
        "CHARGED for B, token 8 (ch_0001)",
        "refuses A's charge: stale_fencing_token, token 7",
        "holds one charge: ch_0001",
    ]
    places = [text.index(line) for line in wanted]
    assert places == sorted(places)


def test_the_timeline_is_aligned_and_folds_what_repeats() -> None:
    text = report.timeline(experiment("x", events=h.slow_watchdog()))
    lines = text.splitlines()
    assert len({line.index(" ms  ") for line in lines}) == 1
    assert "renewed by A, lease 1.00 s, 7 times until 2.33 s" in text
    assert len(lines) < 30 < len(h.slow_watchdog())


def test_every_event_but_folded_messages_is_in_the_timeline() -> None:
    for name, events in h.every():
        text = report.timeline(experiment("x", events=events))
        for what, phrase in {"lock-expired": "EXPIRED", "charge-committed": "CHARGED", "killed": "is killed"}.items():
            count = sum(event["what"] == what for event in events)
            assert text.count(phrase) == count, (name, what)


def test_an_event_nobody_foresaw_is_told_with_its_details() -> None:
    events = [{"t_ms": 5.0, "witness": "queue", "who": "queue", "what": "brand-new", "colour": "blue"}]
    assert "brand-new (colour=blue)" in report.timeline(experiment("x", events=events))


def test_a_lease_ends_as_its_server_says_and_takes_the_token_its_holder_carried() -> None:
    read = facts(h.slow_fenced())
    assert [(lease.holder, lease.end, lease.token) for lease in read.leases] == [
        ("A", "expired", 7), ("B", "expired", 8), ("C", "released", 9),
    ]  # fmt: skip
    assert [len(facts(h.slow_watchdog()).leases[0].renewals), facts(h.lock_lost()).leases[0].end] == [7, "lost"]


def test_a_failure_ends_with_sentence_and_replay_and_shows_a_failed_workers_last_words() -> None:
    e = experiment("x", verdict="double-charge", events=h.slow_double())
    e["workers"] = [{"name": "A", "exit": 1, "log": "\n".join(f"line {n}" for n in range(30)) + "\nTraceback\x1b[2J"}]
    text = report.failure_text(e)
    assert "A ended with status 1; its last words:" in text
    assert "Traceback\\x1b[2J" in text
    assert "line 3\n" not in text
    assert text.endswith(f"{report.sentence(e)}\n\nReplay: {e['replay']}")


@pytest.mark.parametrize("e", sample_runs.hostile()["experiments"], ids=lambda e: e["verdict"])
def test_nothing_a_worker_says_can_move_the_cursor_or_turn_the_writing(e: Experiment) -> None:
    for text in (report.timeline(e), report.sentence(e), report.paragraph(e), report.failure_text(e)):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", text)


def test_each_server_has_the_name_that_people_call_it() -> None:
    assert [words.server_of(f"{link}.get.1.request") for link in ("redis", "redis-2", "postgres", "unknown")] == [
        "Redis",
        "Redis node 2",
        "Postgres",
        "the server",
    ]
