"""What goes wrong at the processor when it is told to: latencies and injected failures, for one customer each."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

FAILURES = (
    "error-before-commit",
    "error-after-commit",
    "no-answer",
    "hold-before-commit",
    "hold-after-commit",
    "decline",
    "rate-limit",
)


@dataclass(slots=True)
class Rule:
    """Applies to the charge requests of a customer; invoice and who (a role) narrow it down.

    before_commit_ms, after_commit_ms: latency around the commit. fail: one of FAILURES. times: how many more requests
    it applies to (None: all). idempotency_ttl_ms: how long the key of a charge it applies to is kept. released: what
    a held request waits for; set when the customer's rules are deleted.
    """

    customer: str = ""
    invoice: str | None = None
    who: str | None = None
    before_commit_ms: float = 0
    after_commit_ms: float = 0
    fail: str | None = None
    times: int | None = None
    idempotency_ttl_ms: int | None = None
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def use(self) -> None:
        """Counts one request that the rule is applied to."""
        if self.times is not None:
            self.times -= 1


NO_RULE = Rule()


class Rules:
    """The rules in force. For a request the narrowest applies, alone: invoice and role, invoice, role, customer."""

    def __init__(self) -> None:
        self._of: dict[str, dict[tuple[str | None, str | None], Rule]] = {}
        self._released: dict[str, asyncio.Event] = {}

    def put(self, rule: Rule) -> None:
        """Replaces the rule of the same customer, invoice and role. What the old one holds stays held until drop."""
        rule.released = self._released.setdefault(rule.customer, rule.released)
        self._of.setdefault(rule.customer, {})[rule.invoice, rule.who] = rule

    def match(self, customer: str, invoice: str, who: str) -> Rule:
        """The rule for one request, NO_RULE if there is none that is not used up."""
        rules = self._of.get(customer)
        if rules:
            for scope in ((invoice, who), (invoice, None), (None, who), (None, None)):
                rule = rules.get(scope)
                if rule is not None and rule.times != 0:
                    return rule
        return NO_RULE

    def drop(self, customer: str) -> None:
        """No rules from now on. What is held goes on; what is asleep keeps the latency it drew on arrival."""
        self._of.pop(customer, None)
        released = self._released.pop(customer, None)
        if released is not None:
            released.set()
