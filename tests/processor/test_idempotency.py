"""Idempotency keys: decided on what was committed, never on what was delivered."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .bank import Customer, together


@pytest.fixture
def key(customer: Customer) -> str:
    return f"key_{customer.name}"


def test_the_same_key_replays_the_stored_answer(customer: Customer, key: str) -> None:
    first = customer.charge("A", key=key)
    again = customer.charge("B", key=key)
    assert (first.status, again.status) == (201, 200)
    assert again.body == first.body
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert len(customer.charges()) == 1
    assert customer.story()[-3:] == ["B charge-arrived", "B charge-replayed", "B charge-answered"]


def test_the_same_key_is_in_use_until_the_first_is_decided(customer: Customer, key: str) -> None:
    customer.rule(fail="hold-before-commit", who="A")
    held = customer.charging("A", key=key)
    refused = customer.charge("B", key=key)
    assert (refused.status, refused.code, refused.param) == (409, "idempotency_key_in_use", "Idempotency-Key")
    customer.no_rules()
    assert held.result().status == 201
    assert customer.charge("B", key=key).body == held.result().body
    assert len(customer.charges()) == 1


def test_a_caller_that_asks_again_without_pause_costs_little(customer: Customer, key: str) -> None:
    """As the contract allows; hundreds of them share one machine."""
    customer.rule(before_commit_ms=500, who="A", times=1)
    held = customer.charging("A", key=key)
    asked = 0
    while customer.charge("B", key=key).status == 409:
        asked += 1
    assert held.result().status == 201
    assert 1 <= asked <= 10


def test_a_caller_is_let_ask_again_as_soon_as_the_first_is_decided(customer: Customer, key: str) -> None:
    customer.rule(fail="hold-before-commit", who="A", times=1)
    held = customer.charging("A", key=key)
    waiting = customer.charging("B", key=key)
    customer.no_rules()
    assert waiting.result().code == "idempotency_key_in_use"
    assert held.result().status == 201


def test_a_committed_charge_is_replayed_before_its_own_answer_has_left(customer: Customer, key: str) -> None:
    customer.rule(fail="hold-after-commit", who="A")
    held = customer.charging("A", key=key)
    customer.until(lambda: len(customer.charges()) == 1)
    replayed = customer.charge("B", key=key)
    assert replayed.status == 200
    assert not held.done()
    customer.no_rules()
    assert held.result().body == replayed.body


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"amount": 1201}, "amount"),
        ({"currency": "USD"}, "currency"),
        ({"invoice": "inv_2"}, "invoice"),
        ({"customer": "cus_other"}, "customer"),
        ({"intent": "pi_other"}, "intent"),
    ],
)
def test_other_parameters_under_the_same_key_are_an_error(
    customer: Customer, key: str, changed: dict[str, Any], param: str
) -> None:
    customer.charge(key=key)
    refused = customer.charge(key=key, **changed)
    assert (refused.status, refused.code, refused.param) == (409, "idempotency_mismatch", param)
    assert len(customer.charges()) == 1


def test_a_key_belongs_to_the_account_whatever_the_customer(customer: Customer, key: str) -> None:
    other = Customer(customer.bank)
    customer.charge(key=key)
    assert other.charge(key=key).code == "idempotency_mismatch"
    assert other.charges() == []
    other.forget()


def test_the_fencing_token_is_not_a_parameter(customer: Customer, key: str) -> None:
    first = customer.charge("A", key=key, token=1)
    assert customer.charge("B", key=key, token=2).body == first.body
    assert customer.account()["mark"] == 2


def test_what_became_of_a_key_is_told_to_a_stale_holder_too(customer: Customer, key: str) -> None:
    first = customer.charge("A", key=key, token=1)
    customer.charge("B", key=key, token=2)
    assert customer.charge("A", key=key, token=1).body == first.body
    assert len(customer.charges()) == 1


def test_an_expired_key_makes_a_new_charge(customer: Customer, key: str) -> None:
    customer.rule(idempotency_ttl_ms=150)
    first = customer.charge(key=key)
    assert customer.charge(key=key).status == 200
    expires_ns = customer.charges()[0]["committed_ns"] + 150_000_000
    customer.until(lambda: time.monotonic_ns() > expires_ns)
    second = customer.charge(key=key)
    assert (second.status, len(customer.charges())) == (201, 2)
    assert second.body["id"] != first.body["id"]
    customer.no_rules()
    assert customer.charge(key=key).body == second.body


def test_after_a_500_behind_a_commit_the_stored_answer_is_the_201(customer: Customer, key: str) -> None:
    customer.rule(fail="error-after-commit", times=1)
    assert customer.charge(key=key).status == 500
    replayed = customer.charge(key=key)
    assert replayed.status == 200
    assert [charge["id"] for charge in customer.charges()] == [replayed.body["id"]]


@pytest.mark.parametrize(("fail", "status"), [("error-before-commit", 500), ("decline", 402), ("rate-limit", 429)])
def test_an_answer_without_a_commit_is_not_stored(customer: Customer, key: str, fail: str, status: int) -> None:
    customer.rule(fail=fail, times=1)
    assert customer.charge(key=key).status == status
    assert customer.charges() == []
    assert customer.charge(key=key).status == 201
    assert len(customer.charges()) == 1


def test_a_refusal_for_a_stale_token_is_not_stored(customer: Customer, key: str) -> None:
    customer.read(token=2)
    assert customer.charge(key=key, token=1).code == "stale_fencing_token"
    assert customer.charge(key=key, token=2).status == 201


def test_of_many_at_once_with_one_key_exactly_one_charges(customer: Customer, key: str) -> None:
    customer.rule(before_commit_ms=50)
    replies = together(16, lambda number: customer.charge("ABC"[number % 3], key=key))
    assert sorted(reply.status for reply in replies) == [201] + [409] * 15
    assert {reply.code for reply in replies} == {None, "idempotency_key_in_use"}
    assert len(customer.charges()) == 1
