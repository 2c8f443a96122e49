"""Intents: charged at most once, and never after they were voided."""

from __future__ import annotations

import pytest

from .bank import Customer


@pytest.fixture
def intent(customer: Customer) -> str:
    return f"pi_{customer.name}"


def test_a_voided_intent_is_never_charged(customer: Customer, intent: str) -> None:
    """Nobody had heard of it before: the tombstone is for the charge that is still on its way."""
    assert customer.void(intent).body == {"voided": True}
    refused = customer.charge(intent=intent)
    assert (refused.status, refused.code, refused.param) == (409, "intent_voided", "intent")
    assert customer.charges() == []


def test_voiding_again_says_the_same(customer: Customer, intent: str) -> None:
    assert [customer.void(intent).status for _ in range(2)] == [200, 200]


def test_a_charged_intent_cannot_be_voided_and_the_charge_is_told(customer: Customer, intent: str) -> None:
    charge = customer.charge(intent=intent).body
    refused = customer.void(intent)
    assert (refused.status, refused.code) == (409, "intent_charged")
    assert refused.body["error"]["charge"] == charge


def test_a_second_charge_under_one_intent_is_refused_with_the_first(customer: Customer, intent: str) -> None:
    first = customer.charge("A", intent=intent).body
    refused = customer.charge("B", intent=intent, invoice="inv_2")
    assert (refused.status, refused.code) == (409, "intent_charged")
    assert refused.body["error"]["charge"] == first
    assert len(customer.charges()) == 1


def test_voiding_stops_a_charge_that_has_not_committed_yet(customer: Customer, intent: str) -> None:
    customer.rule(fail="hold-before-commit", who="A")
    held = customer.charging("A", intent=intent)
    assert customer.void(intent, "B").status == 200
    customer.no_rules()
    assert held.result().code == "intent_voided"
    assert customer.charges() == []


def test_of_two_under_way_under_one_intent_the_second_to_commit_is_refused(customer: Customer, intent: str) -> None:
    customer.rule(fail="hold-before-commit", who="A")
    held = customer.charging("A", intent=intent)
    first = customer.charge("B", intent=intent)
    customer.no_rules()
    assert held.result().code == "intent_charged"
    assert held.result().body["error"]["charge"] == first.body


def test_voiding_too_late_is_told_while_the_answer_is_still_held(customer: Customer, intent: str) -> None:
    customer.rule(fail="hold-after-commit", who="A")
    held = customer.charging("A", intent=intent)
    customer.until(lambda: len(customer.charges()) == 1)
    assert customer.void(intent, "B").code == "intent_charged"
    customer.no_rules()
    assert held.result().status == 201


def test_the_replay_of_a_key_comes_before_the_intent(customer: Customer, intent: str) -> None:
    first = customer.charge(intent=intent, key=intent)
    assert customer.charge(intent=intent, key=intent).body == first.body


def test_voids_and_reads_by_intent_are_in_the_log_of_whoever_charges_under_it(customer: Customer, intent: str) -> None:
    customer.bank.ask("GET", f"{customer.bank.payment['B']}/v1/charges?intent={intent}")
    customer.void(intent, "B")
    customer.charge("A", intent=intent)
    assert customer.story() == [
        "B charges-read",
        "B intent-voided",
        "A charge-arrived",
        "A charge-refused intent_voided",
        "A charge-answered intent_voided",
    ]


def test_a_void_that_came_too_late_is_logged_as_refused(customer: Customer, intent: str) -> None:
    customer.charge("A", intent=intent)
    customer.void(intent, "B")
    assert customer.story()[-1] == "B charge-refused intent_charged"
    assert "B intent-voided" not in customer.story()


@pytest.mark.parametrize("name", ["ü €", "a%2Fb?c=d#e", "..x"])
def test_an_intent_of_unusual_characters_can_be_voided(customer: Customer, name: str) -> None:
    intent = f"{name} {customer.name}"
    assert customer.void(intent).status == 200
    assert customer.charge(intent=intent).code == "intent_voided"
