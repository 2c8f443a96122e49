"""The processor itself: what happens to a charge request, in which order, and what is remembered of it.

Nothing here knows HTTP. Everything runs in one event loop and no step between two awaits can be interrupted, so the
only other way in is the ledger's, which checks again as it commits.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fakes.processor import errors
from fakes.processor.errors import Refusal
from fakes.processor.ledger import KEY_KEPT_MS, Charge, Ledger, Order
from fakes.processor.rules import Rule, Rules

IN_USE_PACE_S = 0.1
"""How long idempotency_key_in_use is kept back, unless the first request is decided sooner. Callers ask again until
they are answered, many at once and without a pause of their own: this bounds what they cost."""

Entry = dict[str, Any]


@dataclass(slots=True)
class Account:
    """What is remembered of one customer until it is forgotten or the process ends; the charges are in the ledger."""

    log: list[Entry] = field(default_factory=list)
    in_flight: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Answer:
    """What to send. silent_until: send nothing; once this is set, close the connection."""

    status: int
    body: Mapping[str, Any]
    replayed: bool = False
    silent_until: asyncio.Event | None = None


class Visit:
    """One charge request from its arrival until its answer was handed over; logs what happens to it."""

    def __init__(self, order: Order, who: str, account: Account) -> None:
        self.order = order
        self.who = who
        self._account = account
        account.in_flight += 1
        account.idle.clear()
        self.log("charge-arrived")

    def log(self, what: str, *, t_ns: int | None = None, charge: str | None = None, code: str | None = None) -> None:
        order = self.order
        self._account.log.append(
            _entry(self.who, what, order.invoice, order.token, order.key, charge, code, order.intent, t_ns)
        )

    def answered(self, answer: Answer) -> None:
        """The answer was handed to the socket."""
        self.log("charge-answered", code=answer.body.get("error", {}).get("code"))
        self._account.log[-1]["status"] = answer.status

    def leave(self) -> None:
        """Nothing more can come of this request."""
        self._account.in_flight -= 1
        if not self._account.in_flight:
            self._account.idle.set()


class Processor:
    """The one account of one merchant. Methods raise Refusal for what is answered with an error."""

    def __init__(self, ledger: Ledger) -> None:
        self.boot = secrets.token_hex(8)
        self.rules = Rules()
        self._ledger = ledger
        self._accounts: dict[str, Account] = {}
        self._undecided: dict[str, asyncio.Event] = {}  # idempotency keys in use; set when decided
        self._of_intents: dict[str, list[Entry]] = {}  # log of what named an intent but no customer

    def arrive(self, order: Order, who: str) -> Visit:
        return Visit(order, who, self._account(order.customer))

    async def charge(self, visit: Visit) -> Answer:
        """Serves a charge request that has arrived: the answer, whatever it is."""
        try:
            return await self._charge(visit)
        except Refusal as error:
            refusal = error
        except sqlite3.Error as error:
            refusal = errors.ledger_unavailable(error)
        if refusal.code != "idempotency_key_in_use":  # logged when it was decided
            visit.log("charge-refused", code=refusal.code)
        return Answer(refusal.status, refusal.to_json())

    async def _charge(self, visit: Visit) -> Answer:
        order = visit.order
        if order.token is not None:
            self._ledger.raise_mark(order.customer, order.token)
        rule = self.rules.match(order.customer, order.invoice, visit.who)
        if rule.fail == "rate-limit":
            rule.use()
            raise errors.rate_limited()
        if order.key is not None:
            earlier = await self._earlier(visit, order.key)
            if earlier is not None:
                return earlier
        self._ledger.check(order)
        rule.use()
        charge = await self._decide(order, visit.who, rule)
        visit.log("charge-committed", t_ns=charge.committed_ns, charge=charge.id)
        if rule.after_commit_ms:
            await asyncio.sleep(rule.after_commit_ms / 1000)
        if rule.fail == "hold-after-commit":
            await rule.released.wait()
        if rule.fail == "error-after-commit":
            return Answer(500, errors.internal_error().to_json())
        return Answer(201, charge.public(), silent_until=rule.released if rule.fail == "no-answer" else None)

    async def _earlier(self, visit: Visit, key: str) -> Answer | None:
        """The answer that an earlier request with the same key has determined."""
        decided = self._undecided.get(key)
        if decided is not None:
            refusal = errors.key_in_use()
            visit.log("charge-refused", code=refusal.code)
            await _wait(decided, IN_USE_PACE_S)
            raise refusal
        stored = self._ledger.stored(key)
        if stored is None:
            return None
        other = stored.differs_from(visit.order)
        if other is not None:
            raise errors.key_mismatch(other)
        visit.log("charge-replayed", charge=stored.id)
        return Answer(200, stored.public(), replayed=True)

    async def _decide(self, order: Order, who: str, rule: Rule) -> Charge:
        """Commits or raises. The idempotency key is in use exactly as long as this takes."""
        decided = asyncio.Event()
        if order.key is not None:
            self._undecided[order.key] = decided
        try:
            if rule.before_commit_ms:
                await asyncio.sleep(rule.before_commit_ms / 1000)
            if rule.fail == "hold-before-commit":
                await rule.released.wait()
            if rule.fail == "error-before-commit":
                raise errors.internal_error()
            if rule.fail == "decline":
                raise errors.card_declined()
            kept_ms = KEY_KEPT_MS if rule.idempotency_ttl_ms is None else rule.idempotency_ttl_ms
            return self._ledger.commit(order, who, kept_ms)
        finally:
            if order.key is not None:
                del self._undecided[order.key]
            decided.set()

    def read(
        self, who: str, *, customer: str | None, invoice: str | None, intent: str | None, token: int | None
    ) -> list[Charge]:
        """The charges on record. A token raises the customer's mark, and is refused when it is lower."""
        entry = _entry(who, "charges-read", invoice, token, None, None, None, intent)
        log = self._account(customer).log if customer is not None else self._of_intents.setdefault(intent or "", [])
        log.append(entry)
        if customer is not None and token is not None:
            mark = self._ledger.raise_mark(customer, token)
            if token < mark:
                refusal = errors.stale_token(token, mark)
                entry["code"] = refusal.code
                raise refusal
        return self._ledger.charges(customer=customer, invoice=invoice, intent=intent)

    def void(self, intent: str, who: str) -> None:
        """Leaves a tombstone. Raises Refusal intent_charged if there is a charge under it."""
        what, code = "intent-voided", None
        try:
            self._ledger.void(intent)
        except Refusal as refusal:
            what, code = "charge-refused", refusal.code
            raise
        finally:
            self._of_intents.setdefault(intent, []).append(_entry(who, what, None, None, None, None, code, intent))

    async def settle(self, customer: str, within_ms: int) -> None:
        """Waits until no request of the customer is in flight, but not longer than within_ms."""
        account = self._accounts.get(customer)
        if account is not None and account.in_flight:
            await _wait(account.idle, within_ms / 1000)

    def account(self, customer: str) -> dict[str, Any]:
        """What is known of a customer: the charges and the mark from disk, the rest from memory."""
        account = self._accounts.get(customer, Account())
        intents = {entry["intent"] for entry in account.log} - {None}
        elsewhere = [entry for intent in intents for entry in self._of_intents.get(intent, ())]
        mark, charges = self._ledger.account(customer)
        return {
            "boot": self.boot,
            "monotonic_ns": time.monotonic_ns(),
            "in_flight": account.in_flight,
            "mark": mark,
            "charges": [charge.record() for charge in charges],
            "log": sorted(account.log + elsewhere, key=lambda entry: int(entry["t_ns"])),
        }

    def forget(self, customer: str) -> None:
        """Drops the rules and the log of a customer; the ledger stays."""
        self.rules.drop(customer)
        account = self._accounts.get(customer)
        if account is None:
            return
        for intent in {entry["intent"] for entry in account.log}:
            self._of_intents.pop(intent, None)
        account.log.clear()
        if not account.in_flight:
            del self._accounts[customer]

    def _account(self, customer: str) -> Account:
        account = self._accounts.get(customer)
        if account is None:
            account = self._accounts[customer] = Account()
        return account


def _entry(
    who: str,
    what: str,
    invoice: str | None,
    token: int | None,
    key: str | None,
    charge: str | None,
    code: str | None,
    intent: str | None,
    t_ns: int | None = None,
) -> Entry:
    return {
        "t_ns": time.monotonic_ns() if t_ns is None else t_ns,
        "who": who,
        "what": what,
        "invoice": invoice,
        "token": token,
        "key": key,
        "charge": charge,
        "code": code,
        "intent": intent,
    }


async def _wait(event: asyncio.Event, within_s: float) -> None:
    """Until the event is set, or the time is over."""
    try:
        await asyncio.wait_for(event.wait(), within_s)
    except TimeoutError:
        pass
