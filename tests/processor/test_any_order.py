"""Any sequence of charges, reads and voids has the outcome that the rules on one screen say it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from .bank import Bank, Customer

TOKENS = st.none() | st.integers(0, 4)
NAMES = st.none() | st.sampled_from(["x", "y"])
INVOICES = st.sampled_from(["inv_1", "inv_2"])


@dataclass
class Paper:
    """The processor on paper, for requests that come one after the other."""

    mark: int = -1
    charges: list[dict[str, Any]] = field(default_factory=list)
    voided: set[str] = field(default_factory=set)

    def charge(self, order: dict[str, Any], token: int | None, key: str | None) -> str | int:
        """The code of the refusal, or the position in charges of the charge that is the answer."""
        stale = token is not None and token < self.mark
        self.mark = max(self.mark, -1 if token is None else token)
        for position, charge in enumerate(self.charges):
            if key is not None and charge["key"] == key:
                same = all(charge[name] == order[name] for name in ("invoice", "amount", "intent"))
                return position if same else "idempotency_mismatch"
        if stale:
            return "stale_fencing_token"
        if order["intent"] is not None and order["intent"] in self.voided:
            return "intent_voided"
        if order["intent"] is not None and any(charge["intent"] == order["intent"] for charge in self.charges):
            return "intent_charged"
        self.charges.append({**order, "key": key, "token": token})
        return len(self.charges) - 1


def conversation(bank: Bank) -> type[RuleBasedStateMachine]:
    class Conversation(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.customer = Customer(bank)
            self.paper = Paper()
            self.ids: list[str] = []
            self.last: tuple[dict[str, Any], str | None] | None = None

        def own(self, name: str | None) -> str | None:
            """Keys and intents belong to the account: each example needs some of its own."""
            return None if name is None else f"{name}_{self.customer.name}"

        @rule(invoice=INVOICES, amount=st.integers(1, 2), token=TOKENS, key=NAMES, intent=NAMES)
        def charge(self, invoice: str, amount: int, token: int | None, key: str | None, intent: str | None) -> None:
            self.last = {"invoice": invoice, "amount": amount, "intent": self.own(intent)}, self.own(key)
            self.again(token)

        @precondition(lambda self: self.last is not None)
        @rule(token=TOKENS)
        def charge_again(self, token: int | None) -> None:
            self.again(token)

        def again(self, token: int | None) -> None:
            """Sends the last order (once more), with this token."""
            assert self.last is not None
            order, key = self.last
            known = len(self.paper.charges)
            expected = self.paper.charge(order, token, key)
            reply = self.customer.charge(token=token, key=key, **order)
            if isinstance(expected, str):
                assert (reply.status, reply.code) == (409, expected)
            elif expected == known:
                assert reply.status == 201
                self.ids.append(reply.body["id"])
            else:
                assert (reply.status, reply.body["id"]) == (200, self.ids[expected])

        @rule(invoice=INVOICES, token=TOKENS)
        def read(self, invoice: str, token: int | None) -> None:
            stale = token is not None and token < self.paper.mark
            self.paper.mark = max(self.paper.mark, -1 if token is None else token)
            reply = self.customer.read(token=token, invoice=invoice)
            if stale:
                assert (reply.status, reply.code) == (409, "stale_fencing_token")
            else:
                wanted = [
                    own
                    for own, charge in zip(self.ids, self.paper.charges, strict=True)
                    if charge["invoice"] == invoice
                ]
                assert [charge["id"] for charge in reply.body["data"]] == wanted

        @rule(intent=st.sampled_from(["x", "y"]))
        def void(self, intent: str) -> None:
            name = f"{intent}_{self.customer.name}"
            reply = self.customer.void(name)
            if any(charge["intent"] == name for charge in self.paper.charges):
                assert (reply.status, reply.code) == (409, "intent_charged")
            else:
                assert reply.status == 200
                self.paper.voided.add(name)

        def teardown(self) -> None:
            account = self.customer.account()
            assert [charge["id"] for charge in account["charges"]] == self.ids
            assert [charge["fencing_token"] for charge in account["charges"]] == [
                c["token"] for c in self.paper.charges
            ]
            assert account["mark"] == (None if self.paper.mark < 0 else self.paper.mark)
            self.customer.forget()

    return Conversation


def test_any_sequence_of_requests_has_the_outcome_of_the_paper_model(bank: Bank) -> None:
    run_state_machine_as_test(
        conversation(bank), settings=settings(max_examples=30, stateful_step_count=20, deadline=None)
    )
