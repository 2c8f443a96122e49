"""Whatever is sent to either address: no 5xx, no hang, and every charge that was answered is in the ledger."""

from __future__ import annotations

import json
import uuid
from typing import Any
from urllib.parse import quote, urlsplit

from hypothesis import given, settings
from hypothesis import strategies as st

from .bank import JSON, Bank, Customer, Reply
from .wire import replies

JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("x" * 256),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
ORDERS = st.fixed_dictionaries(
    {
        "customer": st.just("") | JUNK,  # "" stands for the customer of the example
        "invoice": TEXT | JUNK,
        "amount": st.integers(1, 10**6) | JUNK,
        "currency": st.sampled_from(["EUR", "usd", "XXX"]) | JUNK,
    },
    optional={"intent": TEXT | JUNK, "extra": JUNK},
)
GOOD_ORDERS = st.fixed_dictionaries(
    {
        "customer": st.just(""),
        "invoice": st.text("aZ09_-/&?%'\"\\\u00e4\u20ac\U0001f4b6", min_size=1, max_size=255),
        "amount": st.integers(1, 2**53 - 1),
        "currency": st.sampled_from(["EUR", "usd"]),
    }
)
HEADER_VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=30)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Fencing-Token": st.integers(0, 2**64).map(str) | HEADER_VALUES,
        "Idempotency-Key": HEADER_VALUES,
        "Content-Type": st.sampled_from(["application/json", "text/plain"]) | HEADER_VALUES,
    },
)
METHODS = st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT"])
TARGETS = st.one_of(
    st.sampled_from(["/v1/charges", "/v1/intents/%s/void", "/healthz", "*", "http://p/v1/charges", "p:1"]),
    st.sampled_from(["/control/health", "/control/rules", "/control/account", "/control/customers"]),
    st.text(max_size=20).map(lambda text: "/" + quote(text.encode("utf-8", "surrogatepass"))),
    st.binary(max_size=10).map(lambda raw: "/" + raw.decode("latin-1").replace(" ", "")),
)
QUERIES = st.lists(
    st.tuples(st.sampled_from(["customer", "invoice", "intent", "settle_ms", "x"]), st.binary(max_size=12)), max_size=3
).map(lambda pairs: "&".join(f"{name}={quote(value)}" for name, value in pairs))


def _is_an_answer(reply: Reply) -> None:
    assert 200 <= reply.status < 500
    if reply.status >= 400:
        assert set(reply.body["error"]) >= {"code", "message"}


@given(order=GOOD_ORDERS | ORDERS, headers=HEADERS)
@settings(max_examples=100, deadline=None)
def test_any_charge_request_is_answered_and_no_answered_charge_is_lost(bank: Bank, order: Any, headers: Any) -> None:
    customer = Customer(bank)
    if order["customer"] == "":
        order = {**order, "customer": customer.name}
    encoded = {name: value.encode("latin-1") for name, value in {**JSON, **headers}.items()}
    reply = bank.ask("POST", f"{bank.payment['A']}/v1/charges", headers=encoded, body=json.dumps(order))
    _is_an_answer(reply)
    if reply.status in (200, 201) and order["customer"] == customer.name:
        kept = [charge for charge in customer.charges() if charge["id"] == reply.body["id"]]
        assert [(c["invoice"], c["amount"], c["currency"]) for c in kept] == [
            (order["invoice"], order["amount"], order["currency"].upper())
        ]
    elif reply.status not in (200, 201):
        assert customer.charges() == []


@given(rule=st.dictionaries(st.sampled_from(["customer", "invoice", "who", "fail", "times", "before_commit_ms"]), JUNK))
@settings(max_examples=40, deadline=None)
def test_any_rule_is_answered(bank: Bank, rule: Any) -> None:
    _is_an_answer(bank.ask("PUT", f"{bank.control}/control/rules", headers=JSON, body=json.dumps(rule)))


@given(
    method=METHODS, target=TARGETS, query=QUERIES, headers=HEADERS, body=st.binary(max_size=50), control=st.booleans()
)
@settings(max_examples=120, deadline=None)
def test_any_request_is_answered_at_either_address(
    bank: Bank, method: str, target: str, query: str, headers: dict[str, str], body: bytes, control: bool
) -> None:
    lines = [f"{method} {target}{'?' if query else ''}{query} HTTP/1.1", "Host: p", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    request = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
    statuses = replies(_port(bank, control), request, bank.settled)
    assert statuses
    assert all(200 <= status < 500 for status in statuses), statuses


@given(data=st.data(), control=st.booleans())
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_answered_with_nothing_worse_than_400(bank: Bank, data: st.DataObject, control: bool) -> None:
    """Requests that were damaged on their way: cut, spliced, with bytes of any kind in between."""
    order = json.dumps({"customer": f"cus_{uuid.uuid4().hex}", "invoice": "i", "amount": 1, "currency": "EUR"})
    whole = (
        f"POST /v1/charges HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\nFencing-Token: 1\r\n"
        f"Content-Length: {len(order)}\r\n\r\n{order}GET /v1/charges?customer=a HTTP/1.1\r\nHost: p\r\n\r\n"
    ).encode()
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(whole)), st.integers(0, len(whole))), label="cut"))
    damaged = whole[:start] + data.draw(st.binary(max_size=30), label="inserted") + whole[end:]
    assert all(200 <= status < 500 for status in replies(_port(bank, control), damaged, bank.settled))


def _port(bank: Bank, control: bool) -> int:
    return urlsplit(bank.control).port or 0 if control else bank.port()
