"""The arrows of the drawing: which message went from which lane to which, when it left and when it was there."""

from __future__ import annotations

from typing import Any

from harness.report.facts import WORKERS, Event
from harness.report.words import duration, label_of, link_of, one_line

MINOR_LIMIT = 300
"""Quick exchanges with the lock server drawn at most: a thousand polls are a grey smear that helps nobody."""

_ARRIVALS = ("charge-arrived", "charges-read", "intent-voided")
_OUTCOMES = (
    "charge-answered",
    "charge-committed",
    "charge-refused",
    "charge-replayed",
    "charge-arrived",
    "charges-read",
    "intent-voided",
)
Shape = dict[str, Any]


class Arrows:
    """Messages between lanes. Each goes from where and when it left to where and when it was seen to arrive."""

    def __init__(self, ttl_ms: int) -> None:
        self._quick_ms = max(ttl_ms / 50, 5.0)
        self._arrows: list[Shape] = []
        self._minor = 0

    def draw(self, events: list[Event]) -> list[Shape]:
        replies = self._replies(events)
        held: dict[tuple[str, str], float] = {}
        done: set[int] = set()
        for index, event in enumerate(events):
            what, who, at = str(event["what"]), str(event["who"]), float(event["t_ms"])
            boundary = str(event.get("boundary", ""))
            link = link_of(boundary)
            if who not in WORKERS or not link or index in done:
                continue
            if what == "held" or (what in ("request", "reply") and _is_held(events, index)):
                held.setdefault((who, boundary), at)
            elif what in ("dropped", "reset") and (what == "dropped" or boundary):
                self._add(event, held.pop((who, boundary), at), at, "lost")
            elif what in ("let-go", "request", "reply"):
                begun = held.pop((who, boundary), None)
                if what != "let-go" and begun is None and self._just_let_go(events, index):
                    continue
                self._message(events, index, begun, replies, done)
        for (who, boundary), at in held.items():
            self._add({"who": who, "boundary": boundary, "t_ms": at}, at, at, "lost")
        return self._arrows

    def _message(
        self, events: list[Event], index: int, begun: float | None, replies: dict[int, int], done: set[int]
    ) -> None:
        event = events[index]
        at, boundary = float(event["t_ms"]), str(event["boundary"])
        kind = "held" if begun is not None else "request" if boundary.endswith(".request") else "reply"
        if boundary.endswith(".request"):
            answer = replies.get(index)
            quick = answer is not None and float(events[answer]["t_ms"]) - at < self._quick_ms
            if link_of(boundary) != "processor" and quick and begun is None:
                done.add(answer or 0)
                if self._minor < MINOR_LIMIT:
                    self._minor += 1
                    self._add(event, at, float(events[answer or 0]["t_ms"]), "exchange")
                return
            self._add(
                event, at if begun is None else begun, self._arrival(events, index), kind, self._token(events, index)
            )
        else:
            self._add(event, self._departure(events, index) if begun is None else begun, at, kind)

    def _add(self, event: Event, start: float, end: float, kind: str, token: str | None = None) -> None:
        who, boundary = str(event["who"]), str(event["boundary"])
        server = "processor" if link_of(boundary) == "processor" else "lock"
        there = boundary.endswith(".request")
        took = f", {duration(end - start)} on the way" if end - start > self._quick_ms else ""
        fate = {"held": ", held", "lost": ", never delivered"}.get(kind, "")
        shape = {
            "from": who if there else server,
            "to": server if there else who,
            "t0": start,
            "t1": end,
            "kind": kind,
            "label": _label(boundary) if server == "processor" and there else "",
            "title": f"{who}: {one_line(boundary, 120)}{fate}{took}, at {duration(start)}",
        }
        self._arrows.append(shape | ({"token": token} if token is not None else {}))

    @staticmethod
    def _replies(events: list[Event]) -> dict[int, int]:
        """By position of a request, the position of its reply."""
        asked: dict[tuple[str, str], int] = {}
        found = {}
        for index, event in enumerate(events):
            name, _, side = str(event.get("boundary", "")).rpartition(".")
            if event["what"] == "request":
                asked[str(event["who"]), name] = index
            elif event["what"] == "reply" and side == "reply" and (str(event["who"]), name) in asked:
                found[asked.pop((str(event["who"]), name))] = index
        return found

    @staticmethod
    def _just_let_go(events: list[Event], index: int) -> bool:
        """Whether this message was just drawn as one that had been held."""
        event = events[index]
        for other in reversed(events[max(0, index - 8) : index]):
            if (
                other["what"] == "let-go"
                and other.get("boundary") == event["boundary"]
                and other["who"] == event["who"]
            ):
                return float(event["t_ms"]) - float(other["t_ms"]) < 50.0
        return False

    @staticmethod
    def _arrival(events: list[Event], index: int) -> float:
        event = _arrived(events, index)
        return float(events[index]["t_ms"] if event is None else event["t_ms"])

    @staticmethod
    def _token(events: list[Event], index: int) -> str | None:
        event = _arrived(events, index)
        token = None if event is None else event.get("token")
        return None if token is None else one_line(token, 12)

    @staticmethod
    def _departure(events: list[Event], index: int) -> float:
        """When the processor was done with what it now answers; for other servers the reply's own moment."""
        event = events[index]
        if link_of(str(event["boundary"])) == "processor":
            for other in reversed(events[:index]):
                if other["witness"] == "processor" and other["who"] == event["who"] and other["what"] in _OUTCOMES:
                    return float(other["t_ms"])
        return float(event["t_ms"])


def _is_held(events: list[Event], index: int) -> bool:
    """Whether the tap held or dropped this message as it came, so that it did not pass now."""
    event = events[index]
    for other in events[index + 1 : index + 12]:
        if other["who"] == event["who"] and other.get("boundary") == event["boundary"]:
            return other["what"] in ("held", "dropped")
    return False


def _arrived(events: list[Event], index: int) -> Event | None:
    """The processor's own record of the arrival of this request, if there is one before the worker's next."""
    event = events[index]
    if link_of(str(event["boundary"])) != "processor":
        return None
    for other in events[index + 1 :]:
        if other["who"] != event["who"]:
            continue
        if other["witness"] == "processor" and other["what"] in _ARRIVALS:
            return other
        boundary = str(other.get("boundary", ""))
        if other["what"] == "request" and link_of(boundary) == "processor" and boundary != event["boundary"]:
            return None
    return None


def _label(boundary: str) -> str:
    label = label_of(boundary)
    return {"post-v1-charges": "charge", "get-v1-charges": "which charges?"}.get(label, one_line(label, 24))
