"""Latencies and injected failures, for one customer, invoice or role each."""

from __future__ import annotations

import time

import pytest
import urllib3

from .bank import Customer


def _gap_ms(customer: Customer, first: str, then: str) -> float:
    times = {entry["what"]: entry["t_ns"] for entry in customer.events()}
    return float(times[then] - times[first]) / 1e6


def test_latency_before_the_commit(customer: Customer) -> None:
    customer.rule(before_commit_ms=120)
    assert customer.charge().status == 201
    assert _gap_ms(customer, "charge-arrived", "charge-committed") >= 119
    assert _gap_ms(customer, "charge-committed", "charge-answered") < 119


def test_latency_after_the_commit(customer: Customer) -> None:
    customer.rule(after_commit_ms=120.5)
    assert customer.charge().status == 201
    assert _gap_ms(customer, "charge-arrived", "charge-committed") < 119
    assert _gap_ms(customer, "charge-committed", "charge-answered") >= 119


def test_a_refusal_is_not_slowed_down(customer: Customer) -> None:
    customer.charge(token=2)
    customer.rule(before_commit_ms=60_000, after_commit_ms=60_000)
    assert customer.charge(token=1).code == "stale_fencing_token"


def test_only_the_customer_of_the_rule_is_concerned(customer: Customer) -> None:
    other = Customer(customer.bank)
    customer.rule(fail="decline")
    assert other.charge().status == 201
    other.forget()


def test_the_narrowest_rule_applies_alone(customer: Customer) -> None:
    customer.rule(fail="decline")
    customer.rule(fail="rate-limit", who="B")
    customer.rule(fail="error-before-commit", invoice="inv_2")
    customer.rule(invoice="inv_2", who="C")
    got = {
        (who, invoice): customer.charge(who, invoice=invoice).status for who in "ABC" for invoice in ("inv_1", "inv_2")
    }
    assert got == {
        ("A", "inv_1"): 402,
        ("B", "inv_1"): 429,
        ("C", "inv_1"): 402,
        ("A", "inv_2"): 500,
        ("B", "inv_2"): 500,
        ("C", "inv_2"): 201,
    }


def test_a_rule_is_replaced_by_one_of_the_same_scope(customer: Customer) -> None:
    customer.rule(fail="decline", who="A")
    customer.rule(fail="rate-limit", who="A")
    assert customer.charge("A").status == 429


def test_times_counts_the_requests_it_was_applied_to(customer: Customer) -> None:
    customer.rule(fail="decline", times=2)
    assert customer.charge(amount=0).status == 400
    customer.read(token=5)
    assert customer.charge(token=1).status == 409
    assert [customer.charge().status for _ in range(3)] == [402, 402, 201]


def test_a_replay_does_not_use_up_a_rule(customer: Customer) -> None:
    customer.charge(key=customer.name)
    customer.rule(fail="decline", times=1)
    assert customer.charge(key=customer.name).status == 200
    assert [customer.charge().status for _ in range(2)] == [402, 201]


def test_a_used_up_rule_leaves_the_next_wider_one_in_force(customer: Customer) -> None:
    customer.rule(fail="decline")
    customer.rule(fail="rate-limit", who="A", times=1)
    assert [customer.charge("A").status for _ in range(2)] == [429, 402]


@pytest.mark.parametrize(
    ("fail", "status", "code", "charges"),
    [
        ("error-before-commit", 500, "internal_error", 0),
        ("error-after-commit", 500, "internal_error", 1),
        ("decline", 402, "card_declined", 0),
        ("rate-limit", 429, "rate_limited", 0),
    ],
)
def test_injected_failures(customer: Customer, fail: str, status: int, code: str, charges: int) -> None:
    customer.rule(fail=fail)
    reply = customer.charge()
    assert (reply.status, reply.code) == (status, code)
    assert len(customer.charges()) == charges
    assert customer.events()[-1]["what"] == "charge-answered"
    assert customer.events()[-1]["code"] == code


def test_a_charge_that_is_never_answered_is_committed_and_not_in_flight(customer: Customer) -> None:
    customer.rule(fail="no-answer")
    silent = customer.charging()
    customer.until(lambda: len(customer.charges()) == 1)
    account = customer.account(settle_ms=5000)
    assert account["in_flight"] == 0
    assert not silent.done()
    assert customer.story() == ["A charge-arrived", "A charge-committed"]


def test_deleting_the_rules_ends_a_silence_without_an_answer(customer: Customer) -> None:
    """The connection is closed, as it would be in the end: nobody has to wait for a client's timeout."""
    customer.rule(fail="no-answer")
    silent = customer.charging()
    customer.until(lambda: len(customer.charges()) == 1)
    customer.no_rules()
    with pytest.raises(urllib3.exceptions.ProtocolError):
        silent.result()
    assert customer.story() == ["A charge-arrived", "A charge-committed"]


@pytest.mark.parametrize(("fail", "charges"), [("hold-before-commit", 0), ("hold-after-commit", 1)])
def test_a_held_charge_waits_until_the_rules_are_deleted(customer: Customer, fail: str, charges: int) -> None:
    customer.rule(fail=fail)
    held = customer.charging()
    customer.until(lambda: len(customer.charges()) == charges)
    assert customer.account(settle_ms=50)["in_flight"] == 1
    assert not held.done()
    customer.no_rules()
    assert held.result().status == 201
    assert customer.account(settle_ms=5000)["in_flight"] == 0
    assert len(customer.charges()) == 1


def test_replacing_a_rule_does_not_let_go_what_it_holds_deleting_does(customer: Customer) -> None:
    customer.rule(fail="hold-before-commit")
    held = customer.charging()
    customer.rule(fail=None)
    assert customer.charge("B").status == 201
    assert not held.done()
    customer.no_rules()
    assert held.result().status == 201


def test_a_request_asleep_keeps_its_latency_and_is_not_held_any_more(customer: Customer) -> None:
    customer.rule(before_commit_ms=200, fail="hold-before-commit")
    asleep = customer.charging()
    customer.no_rules()
    assert asleep.result().status == 201
    assert _gap_ms(customer, "charge-arrived", "charge-committed") >= 199


def test_settling_waits_for_what_is_in_flight_and_no_longer(customer: Customer) -> None:
    customer.rule(before_commit_ms=150, times=1)
    pending = customer.charging()
    began = time.monotonic()
    account = customer.account(settle_ms=8000)
    assert (account["in_flight"], len(account["charges"])) == (0, 1)
    assert account["log"][-1]["what"] == "charge-answered"
    assert time.monotonic() - began < 5
    assert pending.result().status == 201


def test_settling_gives_up_when_told_to_and_says_what_is_in_flight(customer: Customer) -> None:
    customer.rule(fail="hold-before-commit")
    held = customer.charging()
    began = time.monotonic()
    assert customer.account(settle_ms=100)["in_flight"] == 1
    assert 0.1 <= time.monotonic() - began < 5
    customer.no_rules()
    held.result()
