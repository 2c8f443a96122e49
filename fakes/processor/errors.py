"""Every way in which the processor says no."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LONGEST_ECHO = 64
"""Characters of a caller's own words that are repeated to it."""


class Refusal(Exception):
    """An answer other than the one asked for: an HTTP status and {"error": {"code", "message", "param"?, ...}}."""

    def __init__(
        self, status: int, code: str, message: str, param: str | None = None, *, charge: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.body: dict[str, Any] = {"code": code, "message": message}
        if param is not None:
            self.body["param"] = param
        if charge is not None:
            self.body["charge"] = charge

    def to_json(self) -> dict[str, Any]:
        return {"error": self.body}


def invalid(param: str, message: str) -> Refusal:
    """400: what was sent can never be right. param names the field, header or query parameter."""
    shown = param[:LONGEST_ECHO]
    return Refusal(400, "invalid_request", f"{shown}: {message}", shown)


def stale_token(token: int, mark: int) -> Refusal:
    message = f"fencing token {token} is lower than {mark}, the highest seen for this customer"
    return Refusal(409, "stale_fencing_token", message, "Fencing-Token")


def key_in_use() -> Refusal:
    message = "an earlier request with this idempotency key has not been decided yet: ask again"
    return Refusal(409, "idempotency_key_in_use", message, "Idempotency-Key")


def key_mismatch(param: str) -> Refusal:
    message = f"this idempotency key was used for a charge with another {param}"
    return Refusal(409, "idempotency_mismatch", message, param)


def intent_voided() -> Refusal:
    return Refusal(409, "intent_voided", "this intent was voided: nothing is ever charged under it", "intent")


def intent_charged(charge: Mapping[str, Any]) -> Refusal:
    return Refusal(409, "intent_charged", "this intent has been charged already", "intent", charge=charge)


def card_declined() -> Refusal:
    return Refusal(402, "card_declined", "the card was declined; nothing was charged")


def rate_limited() -> Refusal:
    return Refusal(429, "rate_limited", "too many requests; nothing was charged")


def internal_error() -> Refusal:
    """The injected 500: says nothing about whether a charge was committed."""
    return Refusal(500, "internal_error", "injected failure: whether anything was charged is not said")


def ledger_unavailable(why: object) -> Refusal:
    return Refusal(503, "ledger_unavailable", f"the ledger cannot be used: {why}")
