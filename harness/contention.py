"""Whether B really contended: without that, one charge is no achievement. Pure.

A message of B's counts that is under way after LOCK_TTL_MS had passed since A took its lock and before A was let go. So
does B's being granted the lock while the fault stands and A is without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.history import Event, History
from harness.witnesses import CLOCK_TOLERANCE_MS, GONE, is_charge_request, number

_NEVER = float("inf")
_SILENT = ("postgres.terminate.", "postgres.cancel.")
"""Messages that no server answers: whoever has sent one waits for nothing."""
_COURTESY = re.compile(
    r"redis(-\d+)?\.(ping|hello|auth|select|echo|quit|reset|info|client(-[\w-]+)?|command(-[\w-]+)?)\."
    r"|postgres\.(ssl-request|gss-request|startup|password)\."
)
"""How messages begin with which a client gets, keeps or ends its connection, on whichever node of several: no job has
decided anything by them."""
_POLLED = "advisory lock"
"""How the name of a lock begins whose account is read from pg_locks now and then: it may miss a short lock."""


def contended(events: History) -> bool:
    """Whether a message of B's, or its wait for the answer, falls into the window, by more than the clocks' error.

    So does B's being granted the lock while the fault stands: then A has it no more, or not yet.
    """
    window = contention_window(events)
    if window is None:
        return False
    opens, closes = window
    earliest, latest = opens + CLOCK_TOLERANCE_MS, closes - CLOCK_TOLERANCE_MS
    since = events.select("fault-struck")[0].t_ms + CLOCK_TOLERANCE_MS
    to_a = _granted_to_a(events, closes)
    not_yet = latest if to_a is None else to_a - CLOCK_TOLERANCE_MS
    for event in events.select("lock-granted", who="B"):
        if since <= event.t_ms < latest and (event.t_ms < not_yet or event.t_ms >= opens):
            return True
    return any(sent < latest and over > earliest for sent, over in _waits_of_b(events))


def contention_window(events: History) -> tuple[float, float] | None:
    """From when to when a message of B counts as contention, in ms since A started; None when there was no fault.

    It opens when LOCK_TTL_MS has passed since A took its lock, or when A has it no more by the server's account (a lock
    that A let go before it charged guards nothing, so that does not count), and not before the fault strikes. It closes
    when A is let go. A lock that A never had by the server's account cannot be waited out: then it opens a LOCK_TTL_MS
    after the fault struck; at once where the account is of the kind that may have missed it.
    """
    struck, jobs = events.select("fault-struck"), events.select("delivered", who="A")
    if not struck or not jobs:
        return None
    ttl_ms = number(jobs[0].detail.get("ttl_ms"), _NEVER)
    closes = min((event.t_ms for event in events.select("fault-lifted")), default=_NEVER)
    granted = _granted_to_a(events, closes)
    if granted is None:
        polled = str(jobs[0].detail.get("lock")).startswith(_POLLED)
        return struck[0].t_ms + (0.0 if polled else ttl_ms), closes
    since = granted - CLOCK_TOLERANCE_MS
    gone = [event for event in events if event.what in GONE and event.who == "A" and event.t_ms >= since]
    free = granted + ttl_ms
    if gone and not _let_go_early(events, gone[0], closes):
        free = min(free, gone[0].t_ms)
    return max(struck[0].t_ms, free), closes


def _granted_to_a(events: History, closes: float) -> float | None:
    """When A took its lock while the fault stood, or whoever it was that nobody could name."""
    granted = [event for event in events.select("lock-granted") if event.t_ms < closes]
    times = [e.t_ms for e in granted if e.who == "A"] or [e.t_ms for e in granted if e.who not in ("B", "C")]
    return min(times, default=None)


def _let_go_early(events: History, gone: Event, closes: float) -> bool:
    """Whether A released its lock and charged after that, while the fault stood."""
    sent = [event.t_ms for event in events.select("request", who="A") if is_charge_request(event)]
    return gone.what == "lock-released" and any(gone.t_ms < at_ms < closes for at_ms in sent)


def _waits_of_b(events: History) -> Iterator[tuple[float, float]]:
    """From when to when each request of B's was under way: unanswered, until B sends the next one or ends."""
    asked = [
        event
        for event in events.select("request", who="B", witness="tap")
        if not _COURTESY.match(str(event.detail.get("boundary")))
    ]
    answered = {str(e.detail.get("boundary")): e.t_ms for e in events.select("reply", who="B", witness="tap")}
    steps = sorted(event.t_ms for event in [*asked, *events.select("ended", who="B")])
    for event in asked:
        boundary = str(event.detail.get("boundary"))
        over = answered.get(boundary.removesuffix("request") + "reply")
        if over is None and not boundary.startswith(_SILENT):
            over = next((at_ms for at_ms in steps if at_ms > event.t_ms), event.t_ms)
        yield event.t_ms, event.t_ms if over is None else max(event.t_ms, over)
