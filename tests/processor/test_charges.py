"""A charge, a read, and what the ledger and the log say of them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from .bank import Bank, Customer

PUBLIC = {"id", "customer", "invoice", "amount", "currency", "intent", "fencing_token", "created_at"}


def test_a_charge_is_answered_with_201_and_is_in_the_ledger(customer: Customer) -> None:
    reply = customer.charge(intent="pi_" + customer.name, token=7, key="k_" + customer.name)
    assert reply.status == 201
    assert set(reply.body) == PUBLIC
    assert reply.body["customer"] == customer.name
    assert (reply.body["invoice"], reply.body["amount"], reply.body["currency"]) == ("inv_1", 1200, "EUR")
    assert (reply.body["intent"], reply.body["fencing_token"]) == ("pi_" + customer.name, 7)
    assert datetime.now(UTC) - datetime.fromisoformat(reply.body["created_at"]) < timedelta(minutes=1)
    [charge] = customer.charges()
    assert {name: charge[name] for name in PUBLIC} == reply.body
    assert (charge["who"], charge["idempotency_key"]) == ("A", "k_" + customer.name)
    assert 0 < time.monotonic_ns() - charge["committed_ns"] < 60e9


def test_without_options_the_optional_fields_are_null(customer: Customer) -> None:
    assert customer.charge().body["intent"] is None
    assert customer.charges()[0]["fencing_token"] is None
    assert customer.charges()[0]["idempotency_key"] is None


def test_null_as_intent_is_no_intent(customer: Customer) -> None:
    assert [customer.charge(intent=None).status for _ in range(2)] == [201, 201]


def test_nothing_stops_a_second_charge_of_the_same_invoice(customer: Customer) -> None:
    assert [customer.charge().status, customer.charge().status] == [201, 201]
    assert len({charge["id"] for charge in customer.charges()}) == 2


def test_reads_find_exactly_what_was_committed(customer: Customer) -> None:
    first = customer.charge(invoice="inv 1/ü&=").body
    second = customer.charge(invoice="inv_2", intent="pi_" + customer.name).body
    assert customer.read(invoice="inv 1/ü&=").body == {"data": [first]}
    assert customer.read(invoice="inv_3").body == {"data": []}
    payment = customer.bank.payment["B"]
    assert customer.bank.ask("GET", f"{payment}/v1/charges?customer={customer.name}").body["data"] == [first, second]
    assert customer.bank.ask("GET", f"{payment}/v1/charges?intent=pi_{customer.name}").body["data"] == [second]


@pytest.mark.parametrize(("sent", "stored"), [("EUR", "EUR"), ("eur", "EUR"), ("JPY", "JPY"), ("CLF", "CLF")])
def test_a_currency_is_stored_in_upper_case(customer: Customer, sent: str, stored: str) -> None:
    assert customer.charge(currency=sent).body["currency"] == stored


@pytest.mark.parametrize("amount", [1, 2**53 - 1])
def test_the_smallest_and_the_largest_amount_are_charged_exactly(customer: Customer, amount: int) -> None:
    assert customer.charge(amount=amount).status == 201
    assert customer.charges()[0]["amount"] == amount


def test_the_log_says_who_did_what_and_when(customer: Customer) -> None:
    before_ns = time.monotonic_ns()
    charge = customer.charge("B", token=3, key="k_" + customer.name).body
    customer.read("C")
    log = customer.events()
    assert customer.story() == ["B charge-arrived", "B charge-committed", "B charge-answered", "C charges-read"]
    for entry in log[:3]:
        assert (entry["invoice"], entry["token"], entry["key"]) == ("inv_1", 3, "k_" + customer.name)
    assert log[1]["charge"] == charge["id"]
    assert log[1]["t_ns"] == customer.charges()[0]["committed_ns"]
    assert log[2]["status"] == 201
    times = [before_ns, *(entry["t_ns"] for entry in log), time.monotonic_ns()]
    assert times == sorted(times)


def test_forgetting_a_customer_clears_the_log_and_keeps_the_ledger(customer: Customer) -> None:
    customer.charge()
    customer.bank.ask("DELETE", f"{customer.bank.control}/control/customers?customer={customer.name}")
    assert customer.events() == []
    assert len(customer.charges()) == 1


def test_health_names_the_start_the_process_and_the_clock(bank: Bank) -> None:
    before_ns = time.monotonic_ns()
    health = bank.ask("GET", f"{bank.control}/control/health").body
    assert (health["ok"], health["boot"], health["pid"]) == (True, bank.boot, bank.process.pid)
    assert before_ns <= health["monotonic_ns"] <= time.monotonic_ns()
    for address in (bank.control, *bank.payment.values()):
        assert bank.ask("GET", f"{address}/healthz").body["ok"] is True


def test_an_answer_is_not_held_back_by_the_network_stack(customer: Customer) -> None:
    """Without TCP_NODELAY each answer takes the 40 ms of a delayed acknowledgement."""

    def charge_ms() -> float:
        began = time.perf_counter()
        customer.charge()
        return (time.perf_counter() - began) * 1000

    for _ in range(30):  # the kernel acknowledges the first few segments of a connection at once
        customer.charge()
    assert min(charge_ms() for _ in range(15)) < 30
