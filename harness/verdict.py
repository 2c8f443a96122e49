"""History -> verdict. Pure: the same events always give the same verdict, in a run or years later.

The verdict is the money's: charges in the ledger, each with the job's own customer, invoice, amount and currency. That
the fault landed and that B contended is read from the history too; without both an exactly-one was not earned.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.history import Event, History
from harness.spec import DOUBLE_CHARGE, EXACTLY_ONE, INCONCLUSIVE, NO_CHARGE, NOT_APPLICABLE

CLOCK_TOLERANCE_MS = 5.0
"""Two processes read one clock, but not at the same moment as the thing they note."""

STALL_FRACTION = 0.25
"""A machine that stood still for more of a lease than this has decided something itself."""

NO_FAULT = "none"
"""The fault of the baseline."""

_INFINITY = float("inf")


@dataclass(frozen=True, slots=True)
class Verdict:
    """kind is one of the five verdicts; reason says why, in a sentence. charges counts the invoice's charges."""

    kind: str
    reason: str
    charges: int
    landed: bool
    contended: bool


def judge(history: Iterable[Event]) -> Verdict:
    """Judges one experiment."""
    events = History(history)
    landed = bool(events.select("landed")) and not events.select("not-landed")
    contended = _contended(events)
    charges = events.select("charge", witness="ledger")
    jobs = events.select("delivered", witness="queue")
    count = _most_charged(charges)

    def verdict(kind: str, reason: str) -> Verdict:
        return Verdict(kind, reason, count, landed, contended)

    if (broken := _harness_broken(events, jobs, charges)) is not None:
        return verdict(INCONCLUSIVE, broken)
    if count > 1:
        return verdict(DOUBLE_CHARGE, f"{count} charges for one invoice" + _aside(events))
    if applies := events.select("inapplicable"):
        return verdict(NOT_APPLICABLE, str(applies[0].detail["reason"]))
    if (doubt := _doubt(events, jobs, landed=landed, contended=contended)) is not None:
        return verdict(INCONCLUSIVE, doubt)
    if (uncharged := _uncharged(jobs, charges)) is not None:
        return verdict(NO_CHARGE, uncharged)
    return verdict(EXACTLY_ONE, "one charge; the fault landed and a second worker contended")


def _invoices(jobs: list[Event]) -> set[str]:
    return {str(job.detail.get("invoice")) for job in jobs}


def _uncharged(jobs: list[Event], charges: list[Event]) -> str | None:
    """Why what was delivered was not all charged; None when it was."""
    missing = _invoices(jobs) - {str(charge.detail["invoice"]) for charge in charges}
    if str(jobs[0].detail.get("invoice")) in missing:
        return "the invoice was never charged, although it was delivered again with nothing wrong"
    if missing:
        return f"the customer's next invoice, {min(missing)}, was not charged, delivered with nothing wrong any more"
    return None


def _most_charged(charges: list[Event]) -> int:
    invoices = [charge.detail.get("invoice") for charge in charges]
    return max((invoices.count(invoice) for invoice in invoices), default=0)


def _harness_broken(events: History, jobs: list[Event], charges: list[Event]) -> str | None:
    """Why nothing at all can be concluded, not even from two charges."""
    if failed := events.select("harness-failed"):
        return str(failed[0].detail["reason"])
    if not jobs or jobs[0].who != "A":
        return "the history is incomplete: it does not begin with a delivery to A"
    if not events.select("judged"):
        return "the history is incomplete: the money was never counted"
    if len({charge.detail.get("charge") for charge in charges}) < len(charges):
        return "the ledger is contradictory: it has one charge twice"
    for charge in charges:
        for name in ("customer", "amount", "currency"):
            if charge.detail.get(name) != jobs[0].detail.get(name):
                has, wants = charge.detail.get(name), jobs[0].detail.get(name)
                return f"the ledger has a charge whose {name} is {has!r}, not the job's {wants!r}"
        if charge.detail.get("invoice") not in _invoices(jobs):
            return (
                f"the ledger has a charge whose invoice is {charge.detail.get('invoice')!r}, which was never delivered"
            )
    return _witnesses_disagree(events, charges)


def _witnesses_disagree(events: History, charges: list[Event]) -> str | None:
    """The tap, the processor and the ledger must tell one story."""
    sent = {who: [e.t_ms for e in events.select("request", who=who, witness="tap") if _is_charge(e)] for who in "ABC"}
    for arrived in events.select("charge-arrived", witness="processor"):
        times = sent.get(arrived.who, [])
        if not times:
            return f"a charge of {arrived.who} reached the processor, but its tap saw none leave: the tap was bypassed"
        if arrived.t_ms < min(times) - CLOCK_TOLERANCE_MS:
            return (
                f"a charge of {arrived.who} reached the processor {min(times) - arrived.t_ms:.0f} ms before its tap "
                "saw it leave: the clock of one of them is off"
            )
    committed = {e.detail.get("charge") for e in events.select("charge-committed", witness="processor")}
    if not events.select("processor-restarted") and (unseen := {c.detail.get("charge") for c in charges} - committed):
        return f"the ledger has charge {sorted(map(str, unseen))[0]}, which the processor's log never committed"
    return None


def _is_charge(event: Event) -> bool:
    boundary = str(event.detail.get("boundary", ""))
    return boundary.startswith("processor.post-v1-charges.") or ".bytes." in boundary


def _doubt(events: History, jobs: list[Event], *, landed: bool, contended: bool) -> str | None:
    """Why one charge, or none, proves nothing here."""
    if died := events.select("server-died"):
        return str(died[0].detail["reason"])
    if events.select("processor-restarted"):
        return "the processor was started again while the experiment ran"
    if unstarted := events.select("not-started"):
        return f"a worker could not be started: {unstarted[0].detail['reason']}"
    ttl_ms = float(jobs[0].detail["ttl_ms"])
    if stalls := [e for e in events.select("stall") if float(e.detail["ms"]) > STALL_FRACTION * ttl_ms]:
        worst = max(stalls, key=lambda event: float(event.detail["ms"]))
        return f"the machine stood still: {worst.detail['of']} waited {float(worst.detail['ms']):.0f} ms for a CPU"
    if not landed:
        missing = events.select("not-landed")
        return "the fault did not land: " + (
            str(missing[0].detail["reason"]) if missing else "no second witness saw it"
        )
    if not contended:
        return (
            "B never contended: none of its messages was under way after A's lease should have run out and before A "
            "was let go"
        )
    return None


def _aside(events: History) -> str:
    stalls = events.select("stall")
    if not stalls:
        return ""
    worst = max(stalls, key=lambda event: float(event.detail["ms"]))
    return f" (the machine stood still meanwhile: {worst.detail['of']}, {float(worst.detail['ms']):.0f} ms)"


def contention_window(events: History) -> tuple[float, float] | None:
    """From when to when a message of B counts as contention, in ms since A started; None when there was no fault.

    It opens when LOCK_TTL_MS has passed since A took its lock, or when A has it no more by the server's account. A lock
    that A never took, or takes later, cannot be waited out: then it opens when the fault strikes, one LOCK_TTL_MS
    later for a subject whose lock no server accounts for. It closes when A is let go.
    """
    struck, jobs = events.select("fault-struck"), events.select("delivered", who="A")
    if not struck or not jobs:
        return None
    ttl_ms = float(jobs[0].detail["ttl_ms"])
    lifted = events.select("fault-lifted")
    closes = lifted[0].t_ms if lifted else _INFINITY
    granted = [event for event in events.select("lock-granted", who="A") if event.t_ms < closes]
    if granted:
        lost = [
            event.t_ms
            for what in ("lock-expired", "lock-released", "lock-lost")
            for event in events.select(what, who="A")
            if event.t_ms >= granted[0].t_ms
        ]
        opens = min([granted[0].t_ms + ttl_ms, *lost])
    elif jobs[0].detail.get("lock") is None:
        opens = struck[0].t_ms + ttl_ms
    else:
        opens = struck[0].t_ms
    return opens, closes


def _contended(events: History) -> bool:
    """Whether a message of B, or the wait for its answer, falls into the window. A baseline asks for none."""
    struck = events.select("fault-struck")
    if struck and struck[0].detail.get("fault") == NO_FAULT:
        return True
    window = contention_window(events)
    if window is None:
        return False
    opens, closes = window
    unanswered: dict[str, float] = {}
    for event in events:
        if event.who != "B":
            continue
        boundary = str(event.detail.get("boundary", ""))
        if event.what == "request":
            if opens <= event.t_ms < closes:
                return True
            unanswered[boundary.removesuffix(".request")] = event.t_ms
        elif event.what == "reply":
            sent = unanswered.pop(boundary.removesuffix(".reply"), None)
            if sent is not None and sent < closes and event.t_ms >= opens:
                return True
        elif event.what == "ended":
            if event.t_ms >= opens and any(sent < closes for sent in unanswered.values()):
                return True
            unanswered.clear()
    return False
