"""A processor process, and a customer's account at it, for the tests."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import tenacity
import urllib3

from .wire import PATIENCE_S, exchange

ROLES = ("A", "B", "C")
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Reply:
    status: int
    body: Any
    headers: Any

    @property
    def code(self) -> str | None:
        """The error's code."""
        code: str | None = self.body["error"]["code"] if "error" in self.body else None
        return code

    @property
    def param(self) -> str | None:
        param: str | None = self.body["error"].get("param")
        return param


class Bank:
    """One start of the processor. Its ports are free ones unless given.

    idle is a connection that was used once and is left alone from then on.
    """

    def __init__(self, ledger: Path, *, payment: dict[str, int] | None = None, control: int = 0) -> None:
        self.ledger = ledger
        ports = payment or dict.fromkeys(ROLES, 0)
        argv = [sys.executable, "-m", "fakes.processor", "--ledger", str(ledger), "--control", f"127.0.0.1:{control}"]
        for role, port in ports.items():
            argv += ["--payment", f"{role}=127.0.0.1:{port}"]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the processor did not start: {self.process.communicate()[1]}")
        started = json.loads(line)
        self.payment: dict[str, str] = started["payment"]
        self.control: str = started["control"]
        self.boot: str = started["boot"]
        self.idle = socket.create_connection(("127.0.0.1", self.port()), PATIENCE_S)
        assert exchange(self.idle, b"GET /healthz HTTP/1.1\r\nHost: p\r\n\r\n")[0] == 200
        self.idle_since = time.monotonic()
        self.http = urllib3.PoolManager(retries=False, maxsize=64, timeout=PATIENCE_S)

    def port(self, role: str = "A") -> int:
        return urlsplit(self.payment[role]).port or 0

    def again(self) -> Bank:
        """The next start, on the same ledger and ports."""
        ports = {role: self.port(role) for role in self.payment}
        return Bank(self.ledger, payment=ports, control=urlsplit(self.control).port or 0)

    def kill(self, sig: int = signal.SIGKILL) -> int:
        """Sends the signal and returns the exit status."""
        self.process.send_signal(sig)
        return self.process.wait(PATIENCE_S)

    def stop(self) -> str:
        """Ends the process, however far it got, and returns what it complained of."""
        self.http.clear()
        self.idle.close()
        if self.process.poll() is None:
            self.process.kill()
        return self.process.communicate(timeout=PATIENCE_S)[1]

    def settled(self) -> None:
        """Returns once everything that was sent before has been dealt with, as far as that takes no waiting."""
        assert self.ask("GET", f"{self.control}/healthz").status == 200

    def ask(self, method: str, url: str, *, headers: Any = None, body: Any = None) -> Reply:
        response = self.http.request(method, url, headers=headers, body=body)
        return Reply(response.status, json.loads(response.data), response.headers)


@contextmanager
def open_bank(ledger: Path) -> Iterator[Bank]:
    """A processor for as long as the block lasts. It must not have complained of anything."""
    bank = Bank(ledger)
    complaints = ""
    try:
        yield bank
    finally:
        complaints = bank.stop()
    assert complaints == ""


@dataclass
class Customer:
    """A customer nobody else uses, with everything a test does on its behalf."""

    bank: Bank
    name: str = field(default_factory=lambda: f"cus_{uuid.uuid4().hex}")
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(16))

    def charge(self, who: str = "A", *, token: int | str | None = None, key: str | None = None, **body: Any) -> Reply:
        """Charges invoice inv_1 1200 EUR, unless told otherwise."""
        headers = dict(JSON)
        if token is not None:
            headers["Fencing-Token"] = str(token)
        if key is not None:
            headers["Idempotency-Key"] = key
        order = {"customer": self.name, "invoice": "inv_1", "amount": 1200, "currency": "EUR", **body}
        return self.bank.ask("POST", f"{self.bank.payment[who]}/v1/charges", headers=headers, body=json.dumps(order))

    def charging(self, who: str = "A", **order: Any) -> Future[Reply]:
        """Starts a charge and returns once it has arrived at the processor."""
        seen = len(self.events("charge-arrived"))
        future = self.pool.submit(self.charge, who, **order)
        self.until(lambda: len(self.events("charge-arrived")) > seen)
        return future

    def read(self, who: str = "A", *, token: int | None = None, **query: str) -> Reply:
        wanted = {"customer": self.name, "invoice": "inv_1", **query}
        headers = {} if token is None else {"Fencing-Token": str(token)}
        return self.bank.ask("GET", f"{self.bank.payment[who]}/v1/charges?{_query(wanted)}", headers=headers)

    def void(self, intent: str, who: str = "A") -> Reply:
        return self.bank.ask("POST", f"{self.bank.payment[who]}/v1/intents/{quote(intent, safe='')}/void")

    def rule(self, **rule: Any) -> None:
        body = json.dumps({"customer": self.name, **rule})
        reply = self.bank.ask("PUT", f"{self.bank.control}/control/rules", headers=JSON, body=body)
        assert reply.status == 200, reply.body

    def no_rules(self) -> None:
        reply = self.bank.ask("DELETE", f"{self.bank.control}/control/rules?customer={self.name}")
        assert reply.status == 200

    def account(self, settle_ms: int = 0) -> dict[str, Any]:
        query = _query({"customer": self.name, "settle_ms": str(settle_ms)})
        reply = self.bank.ask("GET", f"{self.bank.control}/control/account?{query}")
        assert reply.status == 200, reply.body
        found: dict[str, Any] = reply.body
        return found

    def charges(self) -> list[dict[str, Any]]:
        """The ledger's, not the API's."""
        found: list[dict[str, Any]] = self.account()["charges"]
        return found

    def events(self, *whats: str) -> list[dict[str, Any]]:
        return [entry for entry in self.account()["log"] if not whats or entry["what"] in whats]

    def story(self) -> list[str]:
        """The log as "who what code", for comparing."""
        return [" ".join(filter(None, (e["who"], e["what"], e["code"]))) for e in self.events()]

    def until(self, condition: Callable[[], bool]) -> None:
        poll(condition)

    def forget(self) -> None:
        """Lets go what is held, so that no thread of a test waits for it."""
        self.bank.ask("DELETE", f"{self.bank.control}/control/customers?customer={self.name}")
        self.pool.shutdown()


def poll(condition: Callable[[], bool]) -> None:
    """Waits for a condition; fails after PATIENCE_S."""
    retry = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda met: not met),
        wait=tenacity.wait_fixed(0.005),
        stop=tenacity.stop_after_delay(PATIENCE_S),
    )
    retry(condition)


def together(count: int, action: Callable[[int], Reply]) -> Sequence[Reply]:
    """Runs action(0) to action(count - 1) in as many threads, started at one moment."""
    gate = threading.Barrier(count)

    def run(number: int) -> Reply:
        gate.wait(PATIENCE_S)
        return action(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def _query(wanted: dict[str, str]) -> str:
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in wanted.items())
