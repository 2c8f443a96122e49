"""What the processor's own log says about a message of A's that a fault stopped on its way, or let through before."""

from __future__ import annotations

from harness.history import History

_ARRIVALS = {"post-v1-charges": "charge-arrived", "get-v1-charges": "charges-read"}
"""Label of a request -> what the processor notes when it arrives."""


def contradiction(history: History, boundary: str, *, stopped_ms: float, held_until_ms: float) -> str | None:
    """Why the processor's log does not fit; None when it does, or has no say (another link, another call).

    A request must not have arrived before held_until_ms (infinite: never); what a reply answers, before stopped_ms.
    """
    link, label, n, side = boundary.split(".")
    if link != "processor" or label not in _ARRIVALS:
        return None
    seen = history.select(_ARRIVALS[label], who="A", witness="processor")
    arrived_ms = seen[int(n) - 1].t_ms if len(seen) >= int(n) else float("inf")
    if side == "request" and arrived_ms < held_until_ms:
        return f"the processor got A's request at {arrived_ms:.0f} ms, while it should have been held"
    if side == "reply" and arrived_ms > stopped_ms:
        return "the processor had not heard of A's request when A was stopped at the reply to it"
    return None
