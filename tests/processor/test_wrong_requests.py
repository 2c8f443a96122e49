"""Whatever is wrong with a request is answered with a 4xx that names the field, and nothing has happened."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from .bank import JSON, Bank, Customer, Reply
from .wire import PATIENCE_S, exchange

MISSING = ...
KEY_255 = "k" * 255


def _post(customer: Customer, body: Any, headers: Any = JSON) -> Reply:
    return customer.bank.ask("POST", f"{customer.bank.payment['A']}/v1/charges", headers=headers, body=body)


def _order(customer: Customer, /, **changes: Any) -> dict[str, Any]:
    order = {"customer": customer.name, "invoice": "inv_1", "amount": 1200, "currency": "EUR", **changes}
    return {name: value for name, value in order.items() if value is not MISSING}


def _refuses(customer: Customer, reply: Reply, param: str | None, status: int = 400) -> None:
    assert (reply.status, reply.param) == (status, param), reply.body
    assert reply.body["error"]["message"]
    assert customer.charges() == []
    assert customer.events() == []


@pytest.mark.parametrize(
    "value", [MISSING, None, "", "   ", 7, True, ["c"], {"id": "c"}, "c" * 256, "c\0", "\ud800", "a\n"]
)
@pytest.mark.parametrize("param", ["customer", "invoice", "currency"])
def test_text_fields(customer: Customer, param: str, value: Any) -> None:
    _refuses(customer, _post(customer, json.dumps(_order(customer, **{param: value}))), param)


@pytest.mark.parametrize("value", ["", 7, "a/b", ".", "..", "x" * 256, "\0", "\ufffd"])
def test_intent(customer: Customer, value: Any) -> None:
    _refuses(customer, _post(customer, json.dumps(_order(customer, intent=value))), "intent")


@pytest.mark.parametrize(
    "value", [MISSING, None, True, False, 0, -1, 1.0, 12.5, "1200", [1], 2**53, 10**400, float("1e400")], ids=repr
)
def test_amount(customer: Customer, value: Any) -> None:
    body = json.dumps(_order(customer, amount=value)).replace("Infinity", "1e400")
    _refuses(customer, _post(customer, body), "amount")


@pytest.mark.parametrize("value", ["EURO", "EU", "XYZ", "XXX", "XAU", "XTS", "BGN", "HRK", " EUR", "uſd", "978"])
def test_currency(customer: Customer, value: str) -> None:
    """Unknown, withdrawn, without minor units, or only looking like one."""
    _refuses(customer, _post(customer, json.dumps(_order(customer, currency=value))), "currency")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1]",
        b'"text"',
        b"null",
        b"12",
        b'{"amount": NaN}',
        b'{"amount": -Infinity}',
        b'{"amount": ' + b"9" * 5000 + b"}",
        b'{"customer": "\xff"}',
        json.dumps({"customer": "c"}).encode("utf-16"),
        b"\xef\xbb\xbf{}",
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b"{} {}",
    ],
    ids=range(15),
)
def test_body(customer: Customer, body: bytes) -> None:
    _refuses(customer, _post(customer, body), "body")


def test_a_field_given_twice(customer: Customer) -> None:
    body = json.dumps(_order(customer))[:-1] + ', "amount": 1}'
    _refuses(customer, _post(customer, body), "amount")


@pytest.mark.parametrize("name", ["intnet", "Amount", "x" * 1000])
def test_a_field_that_does_not_exist(customer: Customer, name: str) -> None:
    """A misspelt intent would charge without one."""
    _refuses(customer, _post(customer, json.dumps(_order(customer, **{name: 1}))), name[:64])


@pytest.mark.parametrize(
    "value",
    ["", "-1", "+1", "1.0", "0x1", "one", "1 2", "1_000", str(2**63), "9" * 5000, "٣".encode().decode("latin-1")],
    ids=range(11),
)
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_fencing_token(customer: Customer, method: str, value: str) -> None:
    headers = {**JSON, "Fencing-Token": value}
    if method == "POST":
        reply = _post(customer, json.dumps(_order(customer)), headers)
    else:
        url = f"{customer.bank.payment['A']}/v1/charges?customer={customer.name}"
        reply = customer.bank.ask("GET", url, headers=headers)
    _refuses(customer, reply, "Fencing-Token")
    assert customer.account()["mark"] is None


@pytest.mark.parametrize("value", ["", "  ", KEY_255 + "k", "ключ".encode().decode("latin-1")], ids=range(4))
def test_idempotency_key(customer: Customer, value: str) -> None:
    _refuses(
        customer, _post(customer, json.dumps(_order(customer)), {**JSON, "Idempotency-Key": value}), "Idempotency-Key"
    )


def test_an_idempotency_key_of_255_characters_is_fine(customer: Customer) -> None:
    assert customer.charge(key=(customer.name + KEY_255)[:255]).status == 201


@pytest.mark.parametrize("name", ["Fencing-Token", "Idempotency-Key"])
def test_a_header_given_twice(customer: Customer, name: str) -> None:
    body = json.dumps(_order(customer)).encode()
    head = f"POST /v1/charges HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    status, answer = exchange(customer.bank.port(), f"{head}{name}: 1\r\n{name}: 1\r\n\r\n".encode() + body)
    _refuses(customer, Reply(status, json.loads(answer), {}), name)


@pytest.mark.parametrize(
    "content_type",
    [None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "json"],
)
def test_content_type(customer: Customer, content_type: str | None) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    _refuses(customer, _post(customer, json.dumps(_order(customer)), headers), "Content-Type", 415)


@pytest.mark.parametrize("content_type", ["application/json;charset=UTF-8", 'Application/JSON; charset="utf-8"'])
def test_json_may_be_declared_in_other_words(customer: Customer, content_type: str) -> None:
    assert _post(customer, json.dumps(_order(customer)), {"Content-Type": content_type}).status == 201


@pytest.mark.parametrize("size", [64 * 1024 + 1, 3_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_too_large_a_body(customer: Customer, size: int, chunked: bool) -> None:
    padded = json.dumps(_order(customer)).encode().ljust(size)
    body = iter([padded[start : start + 10_000] for start in range(0, size, 10_000)]) if chunked else padded
    _refuses(customer, _post(customer, body), "body", 413)
    assert customer.charge().status == 201


@pytest.mark.parametrize("chunked", [False, True])
def test_the_largest_body_is_fine(customer: Customer, chunked: bool) -> None:
    padded = json.dumps(_order(customer)).encode().ljust(64 * 1024)
    assert _post(customer, iter([padded[:9], padded[9:]]) if chunked else padded).status == 201


def test_an_oversized_body_that_is_announced_is_refused_before_it_is_sent(bank: Bank) -> None:
    head = b"POST /v1/charges HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\n"
    status, _ = exchange(bank.port(), head + b"Content-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n")
    assert status == 413


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("", "customer"),
        ("invoice=inv_1", "customer"),
        ("customer=", "customer"),
        ("customer=a&customer=b", "customer"),
        ("customer=a&invoice=", "invoice"),
        ("customer=a&status=paid", "status"),
        ("customer=%ff", "query"),
        ("customer=%00", "customer"),
        ("customer", "query"),
        ("&".join(f"a{n}=1" for n in range(9)), "query"),
        ("intent=a&invoice=b", "customer"),
        ("intent=a%2Fb", "intent"),
    ],
)
def test_query_of_a_read(customer: Customer, query: str, param: str) -> None:
    _refuses(customer, customer.bank.ask("GET", f"{customer.bank.payment['A']}/v1/charges?{query}"), param)


def test_a_query_on_a_charge_is_refused(customer: Customer) -> None:
    url = f"{customer.bank.payment['A']}/v1/charges?amount=1"
    _refuses(customer, customer.bank.ask("POST", url, headers=JSON, body=json.dumps(_order(customer))), "amount")


def test_a_token_with_a_read_by_intent_alone_is_refused_because_it_could_raise_no_mark(customer: Customer) -> None:
    url = f"{customer.bank.payment['A']}/v1/charges?intent=pi_{customer.name}"
    _refuses(customer, customer.bank.ask("GET", url, headers={"Fencing-Token": "1"}), "Fencing-Token")
    both = customer.bank.ask("GET", f"{url}&customer={customer.name}", headers={"Fencing-Token": "1"})
    assert (both.status, customer.account()["mark"]) == (200, 1)


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/charges/", "/v1/charges/ch_1", "/v2/charges", "/v1/intents/a/b/void"]
)
def test_unknown_path(bank: Bank, path: str) -> None:
    reply = bank.ask("POST", bank.payment["A"] + path, headers=JSON, body="{}")
    assert (reply.status, reply.code) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/charges", {"GET", "HEAD", "POST"}),
        ("DELETE", "/v1/charges", {"GET", "HEAD", "POST"}),
        ("GET", "/v1/intents/pi/void", {"POST"}),
        ("BREW", "/healthz", {"GET", "HEAD"}),
    ],
)
def test_wrong_method(bank: Bank, method: str, path: str, allowed: set[str]) -> None:
    reply = bank.ask(method, bank.payment["A"] + path)
    if method == "BREW":  # no method of HTTP's: the parser's answer
        assert (reply.status, reply.param) == (400, "request")
    else:
        assert (reply.status, reply.code) == (405, "method_not_allowed")
        assert set(reply.headers["Allow"].split(", ")) == allowed


@pytest.mark.parametrize("intent", ["..%2f", "%ff", "%00", "%20", "x" * 256])
def test_intent_in_a_path(bank: Bank, intent: str) -> None:
    reply = bank.ask("POST", f"{bank.payment['A']}/v1/intents/{intent}/void")
    assert (reply.status, reply.code) in {(400, "invalid_request"), (404, "not_found")}


def test_bytes_that_are_no_http_get_a_400_in_the_usual_form(bank: Bank) -> None:
    status, body = exchange(bank.port(), b"hello\r\n\r\n")
    assert status == 400
    assert json.loads(body)["error"]["code"] == "invalid_request"


@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
def test_an_offer_to_upgrade_is_ignored_and_the_connection_stays_usable(customer: Customer, upgrade: str) -> None:
    """Java's HttpClient offers h2c on every new connection."""
    body = json.dumps(_order(customer)).encode()
    head = f"POST /v1/charges HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    offer = f"Connection: Upgrade\r\nUpgrade: {upgrade}\r\n"
    with socket.create_connection(("127.0.0.1", customer.bank.port()), PATIENCE_S) as sock:
        assert exchange(sock, f"{head}{offer}\r\n".encode() + body)[0] == 201
        assert exchange(sock, f"{head}\r\n".encode() + body)[0] == 201
        sock.sendall(f"{head}{offer}\r\n".encode() + body[:9])  # now in two parts
        assert exchange(sock, body[9:])[0] == 201
        health = f"GET /healthz HTTP/1.1\r\nHost: p\r\n{offer}\r\n".encode()
        assert exchange(sock, health)[0] == exchange(sock, health)[0] == 200
    assert len(customer.charges()) == 3


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"customer": None}, "customer"),
        ({"invoice": 7}, "invoice"),
        ({"who": "Z"}, "who"),
        ({"before_commit_ms": -1}, "before_commit_ms"),
        ({"before_commit_ms": True}, "before_commit_ms"),
        ({"after_commit_ms": "5"}, "after_commit_ms"),
        ({"after_commit_ms": 10**9}, "after_commit_ms"),
        ({"fail": "explode"}, "fail"),
        ({"fail": ["decline"]}, "fail"),
        ({"times": 0}, "times"),
        ({"times": 1.5}, "times"),
        ({"idempotency_ttl_ms": -1}, "idempotency_ttl_ms"),
        ({"idempotency_ttl_ms": 10**30}, "idempotency_ttl_ms"),
        ({"latency": 1}, "latency"),
    ],
    ids=repr,
)
def test_a_wrong_rule(customer: Customer, changes: dict[str, Any], param: str) -> None:
    body = json.dumps({"customer": customer.name, **changes})
    _refuses(
        customer, customer.bank.ask("PUT", f"{customer.bank.control}/control/rules", headers=JSON, body=body), param
    )


@pytest.mark.parametrize(
    ("method", "target", "param"),
    [
        ("DELETE", "rules", "customer"),
        ("DELETE", "customers?customer=a&customer=b", "customer"),
        ("GET", "account", "customer"),
        ("GET", "account?customer=a&settle_ms=soon", "settle_ms"),
        ("GET", "account?customer=a&settle_ms=-1", "settle_ms"),
        ("GET", "account?customer=a&settle=1", "settle"),
    ],
)
def test_a_wrong_control_request(customer: Customer, method: str, target: str, param: str) -> None:
    _refuses(customer, customer.bank.ask(method, f"{customer.bank.control}/control/{target}"), param)
