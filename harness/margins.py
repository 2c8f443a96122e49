"""How close a subject's renewals came to its lease: the longest gap between two of them, in all histories of a run.

Pure. When a renewal passed is the tap's word; that it was one is the server's. The server's account alone is not
enough: the harness asks for the lease after each renewal, and where the machine is busy one answer tells of several,
so that two renewals look like one and the gap like two.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from harness.history import Event, History
from harness.report.results import Margin
from harness.report.words import label_of, link_of

UNTOUCHED = ("none", "slow-charge")
"""The faults that touch neither A's process nor its link to the lock's server: of others a gap says nothing."""

_GONE = ("lock-released", "lock-expired", "lock-lost")


def margin(histories: Iterable[History]) -> Margin | None:
    """The longest gap between renewals of worker A, beside the longest lease it was given; None where it never renews.

    histories: of experiments with a fault of UNTOUCHED.
    """
    events = [[event for event in history if event.who == "A"] for history in histories]
    leases = [float(e.detail["lease_ms"]) for mine in events for e in mine if e.what == "lock-renewed"]
    if not leases:
        return None
    renews = _commonest(_asked_before(mine, "lock-renewed") for mine in events)
    takes = _commonest(_asked_before(mine, "lock-granted") for mine in events)
    passed = [
        times
        for mine in events
        for held in _while_held(mine)
        if len(times := _by_the_server(held) if renews in (None, takes) else _by_the_tap(held, renews)) > 1
    ]
    gaps = [later - earlier for times in passed for earlier, later in itertools.pairwise(times)]
    worst_ms = round(max(gaps, default=0.0), 1)
    return {"worst_gap_ms": worst_ms, "lease_ms": max(leases), "renewals": len(gaps)}


def _asked_before(events: Sequence[Event], what: str) -> Iterator[str]:
    """What A had last asked of Redis, each time that the server was seen to do this: the label of the message."""
    label = None
    for event in events:
        boundary = str(event.detail.get("boundary", ""))
        if event.what == "request" and link_of(boundary) == "redis":
            label = label_of(boundary)
        elif event.what == what and label is not None:
            yield label


def _commonest(found: Iterable[Iterable[str]]) -> str | None:
    counts = Counter(itertools.chain.from_iterable(found))
    return counts.most_common(1)[0][0] if counts else None


def _while_held(events: Sequence[Event]) -> Iterator[list[Event]]:
    """For each time that A had the lock what was seen of it, from the grant to the end."""
    held: list[Event] | None = None
    for event in events:
        if event.what == "lock-granted":
            held = [event]
        elif held is not None and event.what in _GONE:
            yield held
            held = None
        elif held is not None:
            held.append(event)
    if held is not None:
        yield held


def _by_the_tap(held: Sequence[Event], renews: str | None) -> list[float]:
    """When A had the lock, and when the answer to each renewal passed."""
    answers = [e for e in held if e.what == "reply" and link_of(str(e.detail.get("boundary", ""))) == "redis"]
    return [held[0].t_ms, *(e.t_ms for e in answers if label_of(str(e.detail["boundary"])) == renews)]


def _by_the_server(held: Sequence[Event]) -> list[float]:
    """The ends of the leases one after the other, whose distances are the renewals': for a worker whose renewals look
    like its taking of the lock."""
    marks = [e for e in held if e.what in ("lock-granted", "lock-renewed") and e.detail.get("lease_ms") is not None]
    return [mark.t_ms + float(mark.detail["lease_ms"]) for mark in marks]
