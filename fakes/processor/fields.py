"""What a request may contain. Every function returns the checked value or raises a Refusal that names the field."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from fakes.processor.currencies import CURRENCIES
from fakes.processor.errors import Refusal, invalid

LONGEST_TEXT = 255
"""Characters of a customer, invoice, intent or idempotency key (Stripe's limit for the last)."""
LARGEST_AMOUNT = 2**53 - 1
"""Minor units: the largest integer that every JSON reader keeps exact (RFC 8259, section 6)."""
LARGEST_TOKEN = 2**63 - 1
"""What a signed 64-bit column holds: Redis counters and PostgreSQL sequences end there too."""
MOST_QUERY_FIELDS = 8

Headers = Iterable[tuple[bytes, bytes]]


def json_object(body: bytes) -> dict[str, Any]:
    """The one JSON object of a body: UTF-8, no NaN or Infinity, no name twice."""
    try:
        value = _DECODER.decode(body.decode())
    except RecursionError:
        raise invalid("body", "nested too deeply") from None
    except ValueError as error:  # not UTF-8, not JSON, or an integer of over 4300 digits
        raise invalid("body", f"not valid JSON ({type(error).__name__})") from None
    if not isinstance(value, dict):
        raise invalid("body", "must be a JSON object")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        raise invalid(next(name for name in names if names.count(name) > 1), "given twice")
    return value


def _not_json(constant: str) -> None:
    raise ValueError(constant)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_not_json)


def only(value: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Refuses names that are not allowed: a misspelt optional field would otherwise be ignored in silence."""
    for name in value:
        if name not in allowed:
            raise invalid(name or "body", f"unknown; known are {', '.join(allowed)}")


def query(query_string: bytes, allowed: Collection[str]) -> dict[str, str]:
    """The parameters of a query string, each at most once."""
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query_string),
            errors="strict",
            max_num_fields=MOST_QUERY_FIELDS,
        )
    except ValueError as error:
        raise invalid("query", f"not a query string ({type(error).__name__})") from None
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        raise invalid(next(name for name in names if names.count(name) > 1), "given twice")
    only(value, allowed)
    return value


def text(value: object, param: str) -> str:
    """1 to 255 printable characters (no NUL, control character or lone surrogate), not all blank."""
    if value is None:
        raise invalid(param, "missing")
    if not isinstance(value, str):
        raise invalid(param, "must be a string")
    if not value.strip():
        raise invalid(param, "must not be empty")
    if len(value) > LONGEST_TEXT:
        raise invalid(param, f"longer than {LONGEST_TEXT} characters")
    if not value.isprintable():
        raise invalid(param, "has characters that cannot be printed")
    return value


def intent(value: object) -> str:
    """As text, and usable as one segment of a path: an intent that cannot be voided must not be charged.

    U+FFFD is what undecodable bytes in a path have become by the time they are seen here.
    """
    checked = text(value, "intent")
    if "/" in checked or "\ufffd" in checked or checked in {".", ".."}:
        raise invalid("intent", "cannot be a segment of a path")
    return checked


def amount(value: object) -> int:
    if value is None:
        raise invalid("amount", "missing")
    if not isinstance(value, int) or isinstance(value, bool):  # True is an int to Python
        raise invalid("amount", "must be an integer, in minor units")
    if not 1 <= value <= LARGEST_AMOUNT:
        raise invalid("amount", f"must be from 1 to {LARGEST_AMOUNT}")
    return value


def currency(value: object) -> str:
    """An ISO 4217 code in either case; upper case is what is stored."""
    code = text(value, "currency")
    if not code.isascii() or code.upper() not in CURRENCIES:  # str.upper() maps a long s to S
        raise invalid("currency", "not an ISO 4217 currency that has minor units")
    return code.upper()


def fencing_token(headers: Headers) -> int | None:
    raw = _one(headers, "Fencing-Token")
    if raw is None:
        return None
    # The length first: int() of a few thousand digits is slow, and of over 4300 refused with another error.
    if not raw.isdigit() or len(raw) > len(str(LARGEST_TOKEN)) or int(raw) > LARGEST_TOKEN:
        raise invalid("Fencing-Token", f"must be an integer from 0 to {LARGEST_TOKEN}")
    return int(raw)


def idempotency_key(headers: Headers) -> str | None:
    raw = _one(headers, "Idempotency-Key")
    if raw is None:
        return None
    if not raw.isascii():
        raise invalid("Idempotency-Key", "must be ASCII")
    return text(raw.decode("ascii"), "Idempotency-Key")


def _one(headers: Headers, name: str) -> bytes | None:
    wanted = name.lower().encode()
    values = [value for key, value in headers if key == wanted]
    if len(values) > 1:
        raise invalid(name, "given twice")
    return values[0].strip() if values else None


def require_json(headers: Headers) -> None:
    """415 unless the body is declared as JSON in UTF-8."""
    declared = _one(headers, "Content-Type") or b""
    media_type, _, parameters = declared.lower().partition(b";")
    charset = parameters.replace(b" ", b"").replace(b'"', b"")
    if media_type.strip() != b"application/json" or charset not in {b"", b"charset=utf-8", b"charset=utf8"}:
        raise Refusal(415, "unsupported_media_type", "Content-Type: must be application/json", "Content-Type")


def whole_number(value: object, param: str, *, largest: int, smallest: int = 0) -> int:
    """An integer of a control request, or of its query string."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(largest)):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not smallest <= value <= largest:
        raise invalid(param, f"must be an integer from {smallest} to {largest}")
    return value


def one_of(value: object, param: str, known: Collection[str]) -> str | None:
    """null or one of the known words."""
    if value is not None and (not isinstance(value, str) or value not in known):
        raise invalid(param, f"must be null or one of {', '.join(known)}")
    return value
