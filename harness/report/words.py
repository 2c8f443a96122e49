"""How the report says times, money, places and other people's strings: one way for every output."""

from __future__ import annotations

import re

_NO_MINOR_UNIT = frozenset(
    "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split()  # ISO 4217: exponent 0
)
_THOUSANDTHS = frozenset("BHD IQD JOD KWD LYD OMR TND".split())  # ISO 4217: exponent 3

_NODE = re.compile(r"redis-(\d+)")
_LINKS = {"redis": "Redis", "processor": "the processor", "postgres": "Postgres"}


def duration(ms: float) -> str:
    """A length of time as people say it: 7 ms, 940 ms, 1.30 s, 12.4 s."""
    if abs(ms) < 999.5:
        return f"{ms:.0f} ms" if abs(ms) >= 0.95 or ms == 0 else f"{ms:.1f} ms"
    return f"{ms / 1000:.2f} s" if abs(ms) < 9995 else f"{ms / 1000:.1f} s"


def money(amount: int, currency: str) -> str:
    """An amount in minor units of an ISO 4217 currency: 1200, "EUR" is 12.00 EUR."""
    code = currency.upper()
    digits = 0 if code in _NO_MINOR_UNIT else 3 if code in _THOUSANDTHS else 2
    return f"{amount / 10**digits:,.{digits}f} {code}"


def times(count: int) -> str:
    """once, twice, 3 times."""
    return {0: "not at all", 1: "once", 2: "twice"}.get(count, f"{count} times")


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """1 experiment, 2 experiments."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def listing(parts: list[str], last: str = "and") -> str:
    """a; a and b; a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}" if parts else ""


def visible(text: object, limit: int | None = None) -> str:
    """Somebody else's text made harmless to look at: what would move the cursor, ring, turn the direction of
    writing or hide is written as an escape; limit cuts it with a note of how much was left out.

    Tabs become spaces and newlines stay. Without this a worker's log could repaint a terminal or, with a
    right-to-left override, make one verdict read as another.
    """
    raw = str(text)
    cut = limit is not None and len(raw) > limit
    if not cut and raw.isascii() and raw.isprintable():  # nearly always, and there are a million of them in a report
        return raw
    shown = _HIDDEN.sub(_escape, (raw[:limit] if cut else raw).replace("\t", "    "))
    return f"{shown} [... {len(raw) - (limit or 0):,} characters more]" if cut else shown


def one_line(text: object, limit: int | None = None) -> str:
    """visible(), with newlines as spaces; what is cut to a few words ends in three dots."""
    flat = " ".join(str(text).split())
    if limit is not None and limit <= 120 and len(flat) > limit:
        return visible(flat[: limit - 3]) + "..."
    return visible(flat, limit)


def link_of(boundary: str) -> str:
    """redis, redis-2 (a node), processor or postgres: the first part of a boundary's name; empty for a named place."""
    link = boundary.partition(".")[0]
    return link if (link in _LINKS or _NODE.fullmatch(link)) and "." in boundary else ""


def label_of(boundary: str) -> str:
    """The message a boundary names, without link, number and side: redis.set.3.request is set."""
    return ".".join(boundary.split(".")[1:-2]) if boundary.count(".") >= 3 else boundary


def server_of(boundary: str) -> str:
    """The server at the other end, as people call it."""
    link = link_of(boundary)
    return f"Redis node {node[1]}" if (node := _NODE.fullmatch(link)) else _LINKS.get(link, "the server")


def token_of(value: object) -> str:
    """with token 7, or nothing where there is none; made to follow the name of whoever carries it."""
    return "" if value is None else f" with token {one_line(value, 40)}"


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_HIDDEN = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0001-\U000e007f]"
)
