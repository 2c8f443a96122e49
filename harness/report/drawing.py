"""An experiment's events as the shapes of its drawing: lanes, bars, marks, arrows and coins, in milliseconds.

The page's script only turns these into SVG; what belongs together (a request and where it arrived, a lease and how
it ended) is worked out here, where it is tested, from the same facts as the text.
"""

from __future__ import annotations

from typing import Any

from harness.report.arrows import Arrows, Shape
from harness.report.facts import WORKERS, Event, Facts, Lease, Span, facts, ordered
from harness.report.phrases import describe
from harness.report.results import Experiment
from harness.report.words import duration, one_line, token_of

LANES = ("A", "B", "C", "lock", "processor", "fault")
_MARKS = {
    "lock-renewed": "renewed",
    "lock-expired": "expired",
    "lock-released": "released",
    "lock-lost": "lost",
    "charge-refused": "refused",
    "charge-replayed": "replayed",
    "processor-restarted": "restarted",
    "killed": "killed",
    "landed": "landed",
    "not-landed": "not-landed",
    "harness-failed": "failed",
    "reset": "reset",
    "refused": "reset",
    "said": "said",
    "stall": "stall",
    "server-died": "failed",
    "not-started": "failed",
}


def drawing(experiment: Experiment, read: Facts | None = None) -> Shape:
    """The shapes as plain JSON. Lanes nothing happened in are left out, but for A, the lock and the processor.

    read: the facts of its events, where somebody has them already.
    """
    events = ordered(experiment["events"])
    if not any(event["what"] == "delivered" for event in events):
        return {}
    read = facts(events) if read is None else read
    start = min(0.0, float(events[0]["t_ms"]))
    shapes: Shape = {
        "start": start,
        "end": read.last_ms,
        "ttl": experiment["ttl_ms"],
        "bars": _bars(read),
        "marks": _marks(events),
        "arrows": Arrows(experiment["ttl_ms"]).draw(events),
        "coins": _coins(read),
    }
    used = {"A", "lock", "processor"} | {shape["lane"] for kind in ("bars", "marks", "coins") for shape in shapes[kind]}
    shapes["lanes"] = [lane for lane in LANES if lane in used]
    return shapes


def _bars(read: Facts) -> list[Shape]:
    bars: list[Shape] = []

    def bar(lane: str, kind: str, start: float, end: float | None, label: str, title: str, **more: Any) -> None:
        over = {} if end is not None else {"open": True}
        last = read.last_ms if end is None else end
        bars.append(
            {"lane": lane, "kind": kind, "from": start, "to": last, "label": label, "title": title, **over, **more}
        )

    for span in read.deliveries:
        if span.who in WORKERS:
            bar(
                span.who,
                "life",
                span.start_ms,
                span.end_ms,
                "",
                f"{span.who} has {_job(span, read)}{_span(span.start_ms, span.end_ms)}",
            )
    for span in read.freezes:
        if span.who in WORKERS:
            bar(
                span.who,
                "frozen",
                span.start_ms,
                span.end_ms,
                "frozen",
                f"{span.who} is frozen{_span(span.start_ms, span.end_ms)}",
            )
    for lease in read.leases:
        label = lease.holder + ("" if lease.token is None else f" \N{MIDDLE DOT} token {one_line(lease.token, 12)}")
        bar("lock", "lease", lease.start_ms, lease.end_ms, label, _lease_title(lease), who=lease.holder, how=lease.end)
    for span in read.in_flight:
        if span.who in WORKERS:
            title = f"{span.who}'s charge is at the processor{_span(span.start_ms, span.end_ms)}"
            bar("processor", "flight", span.start_ms, span.end_ms, "", title, who=span.who)
    for span in read.faults:
        label = one_line(span.label, 40)
        bar("fault", "fault", span.start_ms, span.end_ms, label, f"{label}{_span(span.start_ms, span.end_ms)}")
    return bars


def _lease_title(lease: Lease) -> str:
    told = f"{lease.holder} has the lock{token_of(lease.token)} from {duration(lease.start_ms)}"
    if lease.lease_ms is not None:
        told += f", lease {duration(lease.lease_ms)}"
    if lease.renewals:
        told += f", renewed {len(lease.renewals)} times"
    ends = {"expired": "until it expires", "released": "until it is released", "lost": "until the server loses it"}
    return told + ("" if lease.end_ms is None else f", {ends.get(lease.end, 'until')} at {duration(lease.end_ms)}")


def _job(span: Span, read: Facts) -> str:
    return "the job" if read.concerns(span.invoice, None) else f"the next invoice, {one_line(span.invoice, 60)},"


def _span(start: float, end: float | None) -> str:
    if end is None:
        return f" from {duration(start)} on"
    return f" from {duration(start)} to {duration(end)} ({duration(end - start)})"


def _marks(events: list[Event]) -> list[Shape]:
    marks = []
    for event in events:
        what = str(event["what"])
        lane = _lane(event)
        if what in _MARKS and lane in LANES:
            marks.append({"lane": lane, "kind": _MARKS[what], "at": float(event["t_ms"]), "title": describe(event)})
        elif what == "ended" and lane in WORKERS and isinstance(event.get("exit"), int) and event["exit"] >= 0:
            kind = "ended" if event["exit"] == 0 else "gave-up" if event["exit"] == 75 else "crashed"
            marks.append({"lane": lane, "kind": kind, "at": float(event["t_ms"]), "title": describe(event)})
    return marks


def _lane(event: Event) -> str:
    what = str(event["what"])
    if what.startswith("lock-"):
        return "lock"
    if what in ("landed", "not-landed", "harness-failed", "stall"):
        return "fault"
    if what == "server-died":
        return "fault"
    return "processor" if event["witness"] == "processor" else str(event["who"])


def _coins(read: Facts) -> list[Shape]:
    """The charges in order, numbered by invoice: from the second of an invoice on each is one too many."""
    coins, counted = [], dict.fromkeys((job.invoice for job in read.jobs), 0)
    own = next(iter(counted), None)
    timed = sorted(
        (charge for charge in read.charges if charge.at_ms is not None), key=lambda charge: charge.at_ms or 0.0
    )
    for charge in timed:
        at, invoice = charge.at_ms or 0.0, charge.invoice or own
        number = counted[invoice] = counted.get(invoice, 0) + 1
        of = "" if invoice == own else f" of the next invoice, {one_line(invoice, 60)}"
        title = f"charge {number}{of}: by {one_line(charge.who, 20)}{token_of(charge.token)} at {duration(at)}"
        lease = read.lease_of(charge.who, at)
        if lease is not None and lease.over_at(at):
            title += f", {duration(at - (lease.end_ms or 0.0))} after its lock was gone"
        token = None if charge.token is None else one_line(charge.token, 12)
        coin = {"lane": "processor", "at": at, "n": number, "who": charge.who, "token": token, "title": title}
        coins.append(coin if invoice == own else {**coin, "next": one_line(invoice, 60)})
    return coins
