"""200 concurrent charges, and kill -9 of the processor at random moments in between."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .bank import Bank, Customer

CHARGES = 200
KILLS = 4
CUSTOMERS = 8
WITHIN_S = 30


@dataclass
class Caller:
    """Charges one invoice. With a key it asks until it is answered, without one it asks once."""

    customer: str
    invoice: str
    key: str | None
    answer: dict[str, Any] | None = None
    broken: int = 0

    async def charge(self, port: int) -> None:
        while self.answer is None:
            try:
                self.answer = await self._ask(port)
                return
            except (ConnectionError, asyncio.IncompleteReadError):
                self.broken += 1
            if self.key is None:
                return
            await asyncio.sleep(0.02)  # the pause of a polite caller

    async def _ask(self, port: int) -> dict[str, Any] | None:
        body = json.dumps({"customer": self.customer, "invoice": self.invoice, "amount": 1200, "currency": "EUR"})
        key = "" if self.key is None else f"Idempotency-Key: {self.key}\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(
                f"POST /v1/charges HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\nConnection: close\r\n"
                f"{key}Content-Length: {len(body)}\r\n\r\n{body}".encode()
            )
            head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        if not answer:
            raise ConnectionResetError("closed without an answer")
        status = int(head.split()[1])
        assert status in (200, 201, 409), head
        charge: dict[str, Any] = json.loads(answer)
        return charge if status != 409 else None


async def _storm(bank: Bank, callers: list[Caller], chance: random.Random) -> Bank:
    """Runs all callers at once. Kills each time that so many of them have been answered; returns the last start."""
    moments = sorted(chance.sample(range(CHARGES // 2 - 10), KILLS))
    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
        for caller in callers:
            group.create_task(caller.charge(bank.port()))
        for moment in moments:
            while sum(caller.answer is not None for caller in callers) < moment:
                await asyncio.sleep(0.002)
            await asyncio.to_thread(bank.kill)
            bank.stop()
            bank = await asyncio.to_thread(bank.again)
            await asyncio.to_thread(_slow_down, bank, {caller.customer for caller in callers}, chance)
    return bank


def _slow_down(bank: Bank, customers: set[str], chance: random.Random) -> None:
    """Latencies on both sides of the commit, so that a kill finds charges on either side of it."""
    for name in customers:
        customer = Customer(bank, name)
        customer.rule(before_commit_ms=chance.randrange(60), after_commit_ms=chance.randrange(60))
        customer.pool.shutdown()


def test_every_charge_that_was_answered_is_in_the_ledger_exactly_once(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # pytest shows it with a failure
    chance = random.Random(seed)
    callers = [Caller(f"cus_{n % CUSTOMERS}", f"inv_{n}", f"key_{n}" if n % 2 else None) for n in range(CHARGES)]
    bank = Bank(tmp_path / "ledger")
    try:
        _slow_down(bank, {caller.customer for caller in callers}, chance)
        bank = asyncio.run(_storm(bank, callers, chance))
        accounts = [Customer(bank, f"cus_{n}").account(settle_ms=5000)["charges"] for n in range(CUSTOMERS)]
    finally:
        complaints = bank.stop()
    assert complaints == ""
    ledger = [charge for charges in accounts for charge in charges]
    ids = Counter(charge["id"] for charge in ledger)
    charged = Counter(charge["invoice"] for charge in ledger)
    for caller in callers:
        if caller.answer is not None:
            assert ids[caller.answer["id"]] == 1
        if caller.key is not None:
            assert caller.answer is not None
            assert charged[caller.invoice] == 1
        else:
            assert charged[caller.invoice] == 1 if caller.answer is not None else charged[caller.invoice] <= 1
    assert sum(caller.broken for caller in callers) > 0, "no charge was in flight at any kill: this has shown nothing"
