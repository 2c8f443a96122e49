"""An experiment's events as text: time since the start, who, and what in words, with the dull messages folded.

This is what a failing test prints; the drawing on the page comes from the same events.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.report.facts import Event, Facts, facts, ordered
from harness.report.phrases import words_for
from harness.report.results import Experiment
from harness.report.words import duration, label_of, link_of, listing, one_line, server_of, times, token_of

NEAR_MS = 30.0
"""A message is not told apart from what its server said of it within this time."""

_LOCK_WITNESSES = ("redis", "postgres")
_CONNECTING = "connecting"
_CHATTER = ("hello", "client", "select", "auth", "ping", "startup", "ssl", "sslrequest", "password", "sasl")
_SENT = {"post-v1-charges": "sends its charge", "get-v1-charges": "asks the processor which charges there are"}
_ASKING = ("set", "setnx", "eval", "evalsha", "evalsha_ro", "fcall", "getset", "incr", "query", "parse", "execute")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the timeline: when, whose, what. key: lines in a row with the same one become one line."""

    t_ms: float
    who: str
    text: str
    key: str = ""


@dataclass(slots=True)
class _Fold:
    """Messages of one worker with one label, in a row."""

    label: str
    boundary: str
    first_ms: float
    last_ms: float
    held: bool
    token: str
    count: int = 1


@dataclass(slots=True)
class _Teller:
    ttl_ms: float
    lines: list[Line] = field(default_factory=list)
    folds: dict[str, _Fold] = field(default_factory=dict)
    sent: dict[tuple[str, str], float] = field(default_factory=dict)
    has_held: set[str] = field(default_factory=set)
    deliveries: dict[str, int] = field(default_factory=dict)
    killed: set[str] = field(default_factory=set)
    own: object = None

    def knows(self, event: Event) -> bool:
        """Whether it is the end of a worker that was just told to be killed."""
        return str(event["what"]) == "ended" and str(event["who"]) in self.killed

    def flush(self, who: str) -> None:
        fold = self.folds.pop(who, None)
        if fold is None:
            return
        text = self.told(who, fold)
        if fold.count > 1 and not text.startswith("connects"):
            text += f" {times(fold.count)}, until {duration(fold.last_ms)}"
        self.lines.append(Line(fold.first_ms, who, text))

    def told(self, who: str, fold: _Fold) -> str:
        server = server_of(fold.boundary)
        if fold.label == _CONNECTING:
            return f"connects to {server}"
        if fold.label in _SENT:
            return _SENT[fold.label] + fold.token
        if link_of(fold.boundary) == "redis" and not fold.held and fold.label.split("-")[0] in _ASKING:
            return "asks for the lock"
        return f"asks {server}: {one_line(fold.label, 60)}"

    def message(self, event: Event, told_by_server: bool) -> None:
        who, at, boundary = str(event["who"]), float(event["t_ms"]), str(event.get("boundary", "message"))
        key = (who, boundary.removesuffix(".request").removesuffix(".reply"))
        if event["what"] == "reply":
            waited = at - self.sent.pop(key, at)
            if waited > max(self.ttl_ms / 10, 50.0):
                self.flush(who)
                what = "its charge" if label_of(boundary) == "post-v1-charges" else one_line(label_of(boundary), 60)
                told = f"gets the answer to {what} after {duration(waited)}"
                self.lines.append(Line(at, who, told))
            return
        self.sent[key] = at
        if told_by_server:
            return
        label = _CONNECTING if label_of(boundary).split("-")[0] in _CHATTER else label_of(boundary)
        fold, held = self.folds.get(who), who in self.has_held
        if fold is not None and (fold.label, fold.held, link_of(fold.boundary)) == (label, held, link_of(boundary)):
            fold.count, fold.last_ms = fold.count + 1, at
            return
        self.flush(who)
        self.folds[who] = _Fold(label, boundary, at, at, held, token_of(event.get("token")))

    def other(self, event: Event) -> None:
        who, what = str(event["who"]), str(event["what"])
        self.flush(who)
        if what == "delivered":
            self.own = self.own or event.get("invoice")
            self.deliveries[who] = self.deliveries.get(who, 0) + 1
            self.has_held.discard(who)
            self.killed.discard(who)
        elif what == "killed":
            self.killed.add(who)
        elif what == "lock-granted":
            self.has_held.add(who)
        lane, text = words_for(event, self.deliveries.get(who, 0))
        if what == "delivered" and event.get("invoice") not in (None, self.own):
            text = f"is given the customer's next invoice, {one_line(event['invoice'], 60)}"
        key = f"renewed by {who}" if what == "lock-renewed" else ""
        self.lines.append(Line(float(event["t_ms"]), lane, text, key))


def lines(experiment: Experiment, read: Facts | None = None) -> list[Line]:
    """The timeline, line by line. read: the facts of its events, where somebody has them already."""
    events = ordered(experiment["events"])
    events = _with_tokens(events, facts(events) if read is None else read)
    teller = _Teller(float(experiment["ttl_ms"]))
    for index, event in enumerate(events):
        if event["what"] in ("request", "reply"):
            teller.message(event, event["what"] == "request" and _told_otherwise(events, index))
        elif not (_is_ledger(event) or _no_news(events, index) or teller.knows(event)):
            teller.other(event)
    for who in list(teller.folds):
        teller.flush(who)
    teller.lines.extend(_ledger(events))
    return _folded(sorted(teller.lines, key=lambda line: line.t_ms))


def text(experiment: Experiment, read: Facts | None = None) -> str:
    """The timeline as aligned text, without a trailing newline; says so where there are no events."""
    told = lines(experiment, read)
    if not told:
        return "(no events were recorded)"
    stamps = [f"{line.t_ms:,.0f} ms" for line in told]
    left, middle = max(map(len, stamps)), max(len(line.who) for line in told)
    return "\n".join(
        f"{stamp:>{left}}  {line.who:<{middle}}  {line.text}" for stamp, line in zip(stamps, told, strict=True)
    )


def _with_tokens(events: list[Event], read: Facts) -> list[Event]:
    """A grant tells the token too, where the holder was seen to carry one: the lock's server often does not know it."""
    tokens = {(lease.holder, lease.start_ms): lease.token for lease in read.leases}
    return [
        {**event, "token": tokens.get((str(event["who"]), float(event["t_ms"])))}
        if event["what"] == "lock-granted"
        else event
        for event in events
    ]


def _is_ledger(event: Event) -> bool:
    return (event["what"], event["witness"]) == ("charge", "ledger")


def _no_news(events: list[Event], index: int) -> bool:
    """Whether this is an answer that followed at once on the charge it is about."""
    if events[index]["what"] != "charge-answered":
        return False
    for event in reversed(events[:index]):
        if float(events[index]["t_ms"]) - float(event["t_ms"]) > NEAR_MS:
            return False
        if event["witness"] == "processor" and event["who"] == events[index]["who"]:
            return True
    return False


def _told_otherwise(events: list[Event], index: int) -> bool:
    """Whether the next lines say what became of this request: it was held, or the server's own account follows."""
    asked = events[index]
    link = link_of(str(asked.get("boundary", "")))
    for event in events[index + 1 :]:
        if float(event["t_ms"]) - float(asked["t_ms"]) > NEAR_MS:
            return False
        if event["who"] != asked["who"]:
            continue
        if event["what"] in ("held", "dropped") and event.get("boundary") == asked.get("boundary"):
            return True
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
    for _, group in itertools.groupby(told, key=lambda line: (line.who, line.key or line.text)):
        same = list(group)
        first = same[0]
        if len(same) > 1:
            first = Line(first.t_ms, first.who, f"{first.text}, {times(len(same))} until {duration(same[-1].t_ms)}")
        out.append(first)
    return out


def _ledger(events: list[Event]) -> Iterable[Line]:
    by_invoice: dict[object, list[str]] = {}
    for event in filter(_is_ledger, events):
        name = one_line(event.get("charge", event.get("id", "?")), 40)
        by_invoice.setdefault(event.get("invoice"), []).append(name)
    for invoice, names in by_invoice.items():
        count = "one charge" if len(names) == 1 else f"{len(names)} charges"
        of = "" if len(by_invoice) == 1 else f" for {one_line(invoice, 60)}"
        yield Line(float(events[-1]["t_ms"]), "ledger", f"holds {count}{of}: {listing(names)}")
