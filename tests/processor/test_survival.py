"""What must outlast a killed processor, a lost caller, an idle hour and a bad command line."""

from __future__ import annotations

import json
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import urllib3

from fakes.processor.server import KEEP_ALIVE_S

from .bank import Bank, Customer, open_bank, poll
from .wire import exchange

UVICORN_DEFAULT_KEEP_ALIVE_S = 5


def _request(customer: Customer) -> bytes:
    body = json.dumps({"customer": customer.name, "invoice": "inv_1", "amount": 1200, "currency": "EUR"})
    head = (
        f"POST /v1/charges HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


def test_charges_marks_keys_and_tombstones_survive_kill_9(tmp_path: Path) -> None:
    with open_bank(tmp_path / "ledger") as bank:
        customer = Customer(bank)
        charge = customer.charge(token=5, key="key", intent="pi_charged").body
        customer.void("pi_voided")
        customer.rule(fail="hold-before-commit", invoice="inv_held")
        held = customer.charging(invoice="inv_held")
        assert bank.kill() == -signal.SIGKILL
        with pytest.raises(urllib3.exceptions.HTTPError):
            held.result()
        again = bank.again()
        customer.bank = again
        try:
            assert again.boot != bank.boot
            account = customer.account()
            assert ([c["id"] for c in account["charges"]], account["mark"]) == ([charge["id"]], 5)
            assert (account["log"], account["in_flight"]) == ([], 0)
            assert customer.charge("B", key="key", intent="pi_charged").body == charge
            assert customer.charge("B", token=4).code == "stale_fencing_token"
            assert customer.charge("B", intent="pi_voided").code == "intent_voided"
            assert customer.charge("B", intent="pi_charged").code == "intent_charged"
        finally:
            customer.pool.shutdown()
            assert again.stop() == ""


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_charge_that_has_arrived_is_made_although_its_caller_is_gone(customer: Customer, reset: bool) -> None:
    customer.rule(fail="hold-before-commit")
    with socket.create_connection(("127.0.0.1", customer.bank.port())) as sock:
        sock.sendall(_request(customer))
        customer.until(lambda: customer.account()["in_flight"] == 1)
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # One more round trip, so that the end of the connection has been seen too.
    assert customer.account()["in_flight"] == 1
    customer.no_rules()
    assert customer.account(settle_ms=5000)["in_flight"] == 0
    assert len(customer.charges()) == 1
    assert customer.story() == ["A charge-arrived", "A charge-committed"]


def test_a_request_that_never_came_whole_charges_nothing(customer: Customer) -> None:
    with socket.create_connection(("127.0.0.1", customer.bank.port())) as sock:
        sock.sendall(_request(customer)[:-1])
    assert customer.charge("B").status == 201
    assert customer.story()[0] == "B charge-arrived"
    assert len(customer.charges()) == 1


def test_a_request_in_many_small_pieces_is_one_charge(customer: Customer) -> None:
    with socket.create_connection(("127.0.0.1", customer.bank.port())) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = _request(customer)
        for byte in request[:-1]:
            sock.send(bytes([byte]))
        assert exchange(sock, request[-1:])[0] == 201
    assert len(customer.charges()) == 1


def test_an_idle_connection_is_kept_for_ten_minutes(bank: Bank) -> None:
    """It was opened, and used once, when the processor started."""
    assert KEEP_ALIVE_S == 600
    until = bank.idle_since + UVICORN_DEFAULT_KEEP_ALIVE_S + 1
    closed, _, _ = select.select([bank.idle], [], [], max(0.0, until - time.monotonic()))
    assert not closed
    assert exchange(bank.idle, b"GET /healthz HTTP/1.1\r\nHost: p\r\n\r\n")[0] == 200


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_and_what_is_in_flight_is_neither_answered_nor_committed(
    tmp_path: Path, sig: signal.Signals
) -> None:
    with open_bank(tmp_path / "ledger") as bank:
        customer = Customer(bank)
        customer.rule(fail="hold-before-commit", who="A")
        customer.rule(fail="no-answer", who="B")
        pending = [customer.charging("A"), customer.charging("B")]
        poll(lambda: len(customer.charges()) == 1)
        began = time.monotonic()
        assert bank.kill(sig) == 0
        assert time.monotonic() - began < 1
        for reply in pending:
            with pytest.raises(urllib3.exceptions.ProtocolError):
                reply.result()
        customer.bank = bank.again()
        assert [charge["who"] for charge in customer.charges()] == ["B"]
        customer.pool.shutdown()
        assert customer.bank.stop() == ""


def test_an_unreadable_ledger_is_said_to_be_one(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    with open_bank(ledger) as bank:
        customer = Customer(bank)
        customer.charge()
        ledger.rename(tmp_path / "elsewhere")
        reply = bank.ask("GET", f"{bank.control}/control/account?customer={customer.name}")
        assert (reply.status, reply.code) == (503, "ledger_unavailable")
        assert "unable to open database file" in reply.body["error"]["message"]
        (tmp_path / "elsewhere").rename(ledger)
        assert len(customer.charges()) == 1
        customer.pool.shutdown()


def test_only_one_processor_has_a_ledger(tmp_path: Path) -> None:
    with open_bank(tmp_path / "ledger"):
        ended = _run("--ledger", str(tmp_path / "ledger"), "--payment", "A=127.0.0.1:0")
        assert ended.returncode == 1
        assert "another processor has the ledger" in ended.stderr


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        ([], "--payment"),
        (["--payment", "A"], "ROLE=HOST:PORT"),
        (["--payment", "A=:80"], "HOST:PORT"),
        (["--payment", "A=127.0.0.1:99999"], "HOST:PORT"),
        (["--payment", "A=127.0.0.1:0", "--payment", "A=127.0.0.1:0"], "each role"),
        (["--payment", "A=127.0.0.1:0", "--control", "8000"], "HOST:PORT"),
    ],
)
def test_a_wrong_command_line_is_explained(tmp_path: Path, argv: list[str], complaint: str) -> None:
    ended = _run("--ledger", str(tmp_path / "ledger"), *argv)
    assert ended.returncode == 2
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_cannot_be_opened_is_named(tmp_path: Path, bank: Bank) -> None:
    nowhere = _run("--ledger", str(tmp_path / "missing" / "ledger"), "--payment", "A=127.0.0.1:0")
    assert (nowhere.returncode, "missing/ledger" in nowhere.stderr) == (1, True)
    (tmp_path / "text").write_text("not a database, and long enough not to be taken for an empty one" * 20)
    no_database = _run("--ledger", str(tmp_path / "text"), "--payment", "A=127.0.0.1:0")
    assert (no_database.returncode, "not a database" in no_database.stderr) == (1, True)
    taken = _run("--ledger", str(tmp_path / "ledger"), "--payment", f"A=127.0.0.1:{bank.port()}")
    assert (taken.returncode, "in use" in taken.stderr) == (1, True)


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fakes.processor", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
