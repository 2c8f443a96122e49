"""Each kind of event in words: whose line it is on, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.history import WHAT
from harness.report.facts import WORKERS, Event
from harness.report.words import duration, one_line

_KNOWN_KEYS = ("t_ms", "witness", "who", "what")


def describe(event: Event) -> str:
    """One event in words, for whoever points at it in the drawing."""
    what = str(event["what"])
    if what in ("request", "reply"):
        return f"{event['who']}: {what} {one_line(event.get('boundary', ''), 120)}"
    lane, told = words_for(event, 1)
    return f"{lane}: {told}"


def words_for(event: Event, delivery: int) -> tuple[str, str]:
    """Whose line it is, and what it says."""
    what, who = str(event["what"]), one_line(event["who"], 40)
    tell = _PHRASES.get(what)
    if tell is None:
        return _lane(event), f"{WHAT.get(what, what)}{_rest(event)}"
    if what == "delivered" and delivery > 1:
        return who, f"is given the job again (delivery {delivery})"
    return _lane(event), tell(event, who)


def _lane(event: Event) -> str:
    what, who = str(event["what"]), str(event["who"])
    if what.startswith("lock-"):
        return "lock"
    if what in ("fault-struck", "fault-lifted", "landed", "not-landed", "inapplicable"):
        return "fault"
    if event["witness"] == "processor":
        return "processor"
    if event["witness"] == "monitor":
        return "machine"
    return one_line(who, 40) if who in WORKERS else one_line(event["witness"], 20)


def _get(event: Event, key: str, limit: int = 120) -> str:
    return one_line(event.get(key, "?"), limit)


def _token(event: Event) -> str:
    value = event.get("token")
    return "" if value is None else f", token {one_line(value, 40)}"


def _lease(event: Event) -> str:
    value = event.get("lease_ms")
    if not isinstance(value, (int, float)):
        return ""
    rounded = float(value) if value < 100 else round(float(value), -1)  # a server's answer is a few ms old
    return f", lease {duration(rounded)}"


def _key(event: Event) -> str:
    value = event.get("key")
    return "" if value is None else f", idempotency key {one_line(value, 60)}"


def _rest(event: Event) -> str:
    parts = [f"{one_line(key, 30)}={one_line(value, 80)}" for key, value in event.items() if key not in _KNOWN_KEYS]
    return f" ({', '.join(parts)})" if parts else ""


def _ended(event: Event) -> str:
    status = event.get("exit")
    if status is None:
        return "is gone, killed"
    if isinstance(status, int) and status < 0:
        return f"is gone, killed by signal {-status}"
    notes = {0: "", 75: " (gave up waiting for the lock)"}
    return f"ends with status {one_line(status, 20)}{notes.get(status, ' (failed)')}"


def _said(event: Event) -> str:
    details: Mapping[str, Any] = {k: v for k, v in event.items() if k not in _KNOWN_KEYS and k != "event"}
    more = ", ".join(f"{one_line(key, 30)} {one_line(value, 24)}" for key, value in details.items())
    return f"says: {_get(event, 'event', 60)}" + (f" ({more})" if more else "")


_PHRASES: Mapping[str, Callable[[Event, str], str]] = {
    "delivered": lambda e, who: "is given the job",
    "ended": lambda e, who: _ended(e),
    "fault-struck": lambda e, who: f"{_get(e, 'fault')} strikes at {_get(e, 'place')}",
    "fault-lifted": lambda e, who: f"{_get(e, 'fault')} is lifted" if "fault" in e else "is lifted",
    "landed": lambda e, who: f"seen to have landed: {_get(e, 'evidence', 300)}",
    "not-landed": lambda e, who: f"NOT seen to have landed: {_get(e, 'reason', 300)}",
    "inapplicable": lambda e, who: f"does not apply: {_get(e, 'reason', 300)}",
    "harness-failed": lambda e, who: f"THE HARNESS FAILED: {_get(e, 'reason', 300)}",
    "judged": lambda e, who: "all quiet: every process reaped, the money counted",
    "held": lambda e, who: f"its message {_get(e, 'boundary')} is held",
    "let-go": lambda e, who: f"its message {_get(e, 'boundary')} is let go",
    "dropped": lambda e, who: f"its message {_get(e, 'boundary')} is dropped",
    "reset": lambda e, who: "its connection is reset" + (f" at {_get(e, 'boundary')}" if "boundary" in e else ""),
    "refused": lambda e, who: "its connections are refused",
    "lock-granted": lambda e, who: f"granted to {who}{_token(e)}{_lease(e)}",
    "lock-renewed": lambda e, who: f"renewed by {who}{_lease(e)}",
    "lock-expired": lambda e, who: f"{who}'s lease has EXPIRED" if who in WORKERS else "the lease has EXPIRED",
    "lock-released": lambda e, who: f"released by {who}",
    "lock-lost": lambda e, who: f"LOST by the server{_rest(e)}",
    "charge-arrived": lambda e, who: f"{who}'s charge arrives{_token(e)}{_key(e)}",
    "charge-committed": lambda e, who: (
        f"CHARGED for {who}{_token(e)}" + (f" ({_get(e, 'charge', 40)})" if "charge" in e else "")
    ),
    "charge-refused": lambda e, who: f"refuses {who}'s charge: {_get(e, 'code', 60)}{_token(e)}",
    "charge-replayed": lambda e, who: f"gives {who} the earlier answer again{_key(e)}",
    "charge-answered": lambda e, who: f"answers {who}",
    "not-started": lambda e, who: f"could not be started: {_get(e, 'reason', 300)}",
    "server-died": lambda e, who: f"A SERVER DIED: {_get(e, 'reason', 300)}",
    "charges-read": lambda e, who: f"{who} asks which charges there are{_token(e)}",
    "intent-voided": lambda e, who: f"voids an intent for {who}",
    "processor-restarted": lambda e, who: "is started again",
    "stopped": lambda e, who: "is frozen: every thread seen stopped",
    "continued": lambda e, who: "runs again",
    "killed": lambda e, who: "is killed: its processes are gone",
    "said": lambda e, who: _said(e),
    "stall": lambda e, who: (
        f"stood still for {_get(e, 'ms', 20)} ms" + (f" ({_get(e, 'of', 80)})" if "of" in e else "")
    ),
}
