"""An experiment's events as text: time since the start, who, and what in words, with the dull messages folded.

This is what a failing test prints; the drawing on the page comes from the same events.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.history import WHAT
from harness.report.facts import WORKERS, Event, ordered
from harness.report.results import Experiment
from harness.report.words import duration, label_of, link_of, listing, one_line, server_of, times

NEAR_MS = 30.0
"""A message is not told apart from what its server said of it within this time."""

_LOCK_WITNESSES = ("redis", "postgres")
_ASKING = ("set", "setnx", "eval", "evalsha", "evalsha_ro", "fcall", "getset", "incr", "query", "parse", "execute")
_KNOWN_KEYS = frozenset(("t_ms", "witness", "who", "what"))


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the timeline: when, whose, what."""

    t_ms: float
    who: str
    text: str


@dataclass(slots=True)
class _Fold:
    """Messages of one worker with one label, in a row."""

    label: str
    boundary: str
    first_ms: float
    last_ms: float
    holding: bool
    count: int = 1


@dataclass(slots=True)
class _Teller:
    ttl_ms: float
    lines: list[Line] = field(default_factory=list)
    folds: dict[str, _Fold] = field(default_factory=dict)
    sent: dict[tuple[str, str], float] = field(default_factory=dict)
    holding: set[str] = field(default_factory=set)
    deliveries: dict[str, int] = field(default_factory=dict)

    def flush(self, who: str) -> None:
        fold = self.folds.pop(who, None)
        if fold is None:
            return
        link, server = link_of(fold.boundary), server_of(fold.boundary)
        asking = link == "redis" and not fold.holding and fold.label in _ASKING
        if asking:
            text = "asks for the lock" if fold.count == 1 else f"asks for the lock {times(fold.count)}"
        else:
            text = f"asks {server}: {one_line(fold.label, 60)}" + (f", {times(fold.count)}" if fold.count > 1 else "")
        if fold.count > 1:
            text += f", until {duration(fold.last_ms)}" + (", in vain" if asking else "")
        self.lines.append(Line(fold.first_ms, who, text))

    def message(self, event: Event, told_by_server: bool) -> None:
        who, at, boundary = str(event["who"]), float(event["t_ms"]), str(event.get("boundary", "message"))
        key = (who, boundary.removesuffix(".request").removesuffix(".reply"))
        if event["what"] == "reply":
            waited = at - self.sent.pop(key, at)
            if waited > max(self.ttl_ms / 10, 50.0):
                self.flush(who)
                told = f"gets the answer to {one_line(label_of(boundary), 60)} after {duration(waited)}"
                self.lines.append(Line(at, who, told))
            return
        self.sent[key] = at
        if told_by_server:
            return
        label, holding = label_of(boundary), who in self.holding
        fold = self.folds.get(who)
        if fold is not None and fold.label == label and fold.holding == holding:
            fold.count, fold.last_ms = fold.count + 1, at
            return
        self.flush(who)
        self.folds[who] = _Fold(label, boundary, at, at, holding)

    def other(self, event: Event) -> None:
        who, what = str(event["who"]), str(event["what"])
        self.flush(who)
        if what == "delivered":
            self.deliveries[who] = self.deliveries.get(who, 0) + 1
        elif what == "lock-granted":
            self.holding.add(who)
        elif what in ("lock-expired", "lock-released", "lock-lost"):
            self.holding.discard(who)
        lane, text = _words(event, self.deliveries.get(who, 0))
        self.lines.append(Line(float(event["t_ms"]), lane, text))


def lines(experiment: Experiment) -> list[Line]:
    """The timeline, line by line."""
    events = ordered(experiment["events"])
    teller = _Teller(float(experiment["ttl_ms"]))
    for index, event in enumerate(events):
        if event["what"] in ("request", "reply"):
            teller.message(event, event["what"] == "request" and _told_by_server(events, index))
        elif not (event["what"] == "charge" and event["witness"] == "ledger"):
            teller.other(event)
    for who in list(teller.folds):
        teller.flush(who)
    teller.lines.extend(_ledger(events))
    return _folded(sorted(teller.lines, key=lambda line: line.t_ms))


def text(experiment: Experiment) -> str:
    """The timeline as aligned text, without a trailing newline; says so where there are no events."""
    told = lines(experiment)
    if not told:
        return "(no events were recorded)"
    stamps = [f"{line.t_ms:,.0f} ms" for line in told]
    left, middle = max(map(len, stamps)), max(len(line.who) for line in told)
    return "\n".join(
        f"{stamp:>{left}}  {line.who:<{middle}}  {line.text}" for stamp, line in zip(stamps, told, strict=True)
    )


def describe(event: Event) -> str:
    """One event in words, for whoever points at it in the drawing."""
    what = str(event["what"])
    if what in ("request", "reply"):
        return f"{event['who']}: {what} {one_line(event.get('boundary', ''), 120)}"
    lane, told = _words(event, 1)
    return f"{lane}: {told}"


def _told_by_server(events: list[Event], index: int) -> bool:
    """Whether the server's own account says within NEAR_MS what this request did."""
    asked = events[index]
    link = link_of(str(asked.get("boundary", "")))
    for event in events[index + 1 :]:
        if float(event["t_ms"]) - float(asked["t_ms"]) > NEAR_MS:
            return False
        if event["who"] != asked["who"]:
            continue
        if link == "processor" and event["witness"] == "processor":
            return True
        if link in _LOCK_WITNESSES and event["witness"] in _LOCK_WITNESSES and str(event["what"]).startswith("lock-"):
            return True
        if event["what"] == "request":
            return False
    return False


def _folded(told: list[Line]) -> list[Line]:
    """The same thing said several times in a row, such as a renewal, as one line."""
    out: list[Line] = []
    for _, group in itertools.groupby(told, key=lambda line: (line.who, line.text)):
        same = list(group)
        first = same[0]
        if len(same) > 1:
            first = Line(first.t_ms, first.who, f"{first.text}, {times(len(same))} until {duration(same[-1].t_ms)}")
        out.append(first)
    return out


def _ledger(events: list[Event]) -> Iterable[Line]:
    entries = [event for event in events if event["what"] == "charge" and event["witness"] == "ledger"]
    if entries:
        names = [one_line(event.get("charge", event.get("id", "?")), 40) for event in entries]
        count = "one charge" if len(entries) == 1 else f"{len(entries)} charges"
        yield Line(float(entries[-1]["t_ms"]), "ledger", f"holds {count}: {listing(names)}")


def _words(event: Event, delivery: int) -> tuple[str, str]:
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
    return f", lease {duration(float(value))}" if isinstance(value, (int, float)) else ""


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
    notes = {0: "", 75: " (gave up waiting for the lock)"}
    return f"ends with status {one_line(status, 20)}{notes.get(status, ' (failed)')}"


def _said(event: Event) -> str:
    details: Mapping[str, Any] = {k: v for k, v in event.items() if k not in _KNOWN_KEYS and k != "event"}
    more = ", ".join(f"{one_line(key, 30)} {one_line(value, 60)}" for key, value in details.items())
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
    "charge-arrived": lambda e, who: f"{who} asks to charge{_token(e)}{_key(e)}",
    "charge-committed": lambda e, who: (
        f"CHARGED for {who}{_token(e)}" + (f" ({_get(e, 'charge', 40)})" if "charge" in e else "")
    ),
    "charge-refused": lambda e, who: f"refuses {who}'s charge: {_get(e, 'code', 60)}{_token(e)}",
    "charge-replayed": lambda e, who: f"gives {who} the earlier answer again{_key(e)}",
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
