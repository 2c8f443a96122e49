"""History -> verdict. Pure: the same events always give the same verdict, in a run or years later.

The verdict is the money's: charges in the ledger, each with the job's own customer, invoice, amount and currency. That
the fault landed and that B contended is read from the history too; without both an exactly-one was not earned. What is
missing from a history speaks against it: exactly-one and no-charge need every event that they rest on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from harness.contention import contended
from harness.history import Event, History
from harness.spec import DOUBLE_CHARGE, EXACTLY_ONE, INCONCLUSIVE, NO_CHARGE, NOT_APPLICABLE
from harness.witnesses import CLOCK_TOLERANCE_MS, contradiction, number, two_holders, unfinished

STALL_FRACTION = 0.25
"""A machine that stood still for more of a lease than this has decided something itself."""

NO_FAULT = "none"
"""The fault of the baseline."""

CLEAN_LEASES = 11
"""For how long C must have come again before the invoice counts as never charged: C comes each lease for 12."""

_NEVER = float("inf")
_HARNESS_OWN = frozenset({"queue", "worker", "toxiproxy"})
"""Who cannot be the second witness: the part that freezes, kills and lifts, the worker's own words, the toxics."""
_MEDDLING = ("held", "dropped", "reset", "refused")
_GOING_ON = ("delivered", "ended", "request", "charge-arrived", "charge-committed", "charge", "fault-lifted")


@dataclass(frozen=True, slots=True)
class Verdict:
    """kind is one of the five verdicts; reason says why, in a sentence. charges counts the invoice's charges."""

    kind: str
    reason: str
    charges: int
    landed: bool
    contended: bool


def judge(history: Iterable[Event]) -> Verdict:
    """Judges one experiment. Never raises: a history that makes no sense is inconclusive."""
    events = _in_order(history)
    jobs = events.select("delivered", witness="queue")
    charges = events.select("charge", witness="ledger")
    strange = next((why for charge in charges if (why := _strange(charge, jobs)) is not None), None)
    proper = [charge for charge in charges if _strange(charge, jobs) is None]
    landed = _landed(events)
    tried = bool(_requests_of_b(events)) if _is_baseline(events) else contended(events)

    def verdict(kind: str, reason: str) -> Verdict:
        return Verdict(kind, reason, _most_charged(charges), landed, tried)

    applies = events.select("inapplicable")
    if applies and len(applies) == len(events):
        return verdict(NOT_APPLICABLE, _reason(applies))
    if (broken := _harness_broken(events, jobs)) is not None:
        return verdict(INCONCLUSIVE, broken)
    if (count := _most_charged(proper)) > 1:
        return verdict(DOUBLE_CHARGE, f"{count} charges for one invoice" + _aside(events))
    if (doubt := strange or _disturbed(events, jobs)) is not None:
        return verdict(INCONCLUSIVE, doubt)
    if applies:
        return verdict(NOT_APPLICABLE, _reason(applies))
    if (doubt := _not_tried(events, jobs, landed=landed)) is not None:
        return verdict(INCONCLUSIVE, doubt)
    if (uncharged := _uncharged(jobs, proper)) is not None:
        hasty = _hasty(events, jobs, proper)
        return verdict(NO_CHARGE, uncharged) if hasty is None else verdict(INCONCLUSIVE, hasty)
    if (doubt := _unearned(events, contended=tried)) is not None:
        return verdict(INCONCLUSIVE, doubt)
    return verdict(EXACTLY_ONE, "one charge; the fault landed and a second worker contended")


def _in_order(history: Iterable[Event]) -> History:
    """The events as JSON keeps them (t_ms to a microsecond), in one order whatever order they come in."""

    def key(event: Event) -> tuple[Any, ...]:
        names = ("boundary", "charge", "reason", "of", "ms")
        return event.t_ms, event.witness, event.who, event.what, *(str(event.detail.get(name)) for name in names)

    return History(sorted((replace(event, t_ms=round(event.t_ms, 3)) for event in history), key=key), started_ns=0)


def _reason(events: list[Event]) -> str:
    return str(events[0].detail.get("reason", "for a reason that nobody noted"))


def _ttl_ms(jobs: list[Event]) -> float:
    return number(jobs[0].detail.get("ttl_ms"), 0.0) if jobs else 0.0


# --- the money ---


def _invoices(jobs: list[Event]) -> set[str]:
    return {str(job.detail.get("invoice")) for job in jobs}


def _strange(charge: Event, jobs: list[Event]) -> str | None:
    """In what a charge is not one of those that were asked for."""
    if jobs and charge.detail.get("invoice") not in _invoices(jobs):
        return f"the ledger has a charge whose invoice is {charge.detail.get('invoice')!r}, which was never delivered"
    for name in ("customer", "amount", "currency") if jobs else ():
        has, wants = charge.detail.get(name), jobs[0].detail.get(name)
        if has != wants:
            return f"the ledger has a charge whose {name} is {has!r}, not the job's {wants!r}"
    return None


def _most_charged(charges: list[Event]) -> int:
    invoices = [charge.detail.get("invoice") for charge in charges]
    return max((invoices.count(invoice) for invoice in invoices), default=0)


def _uncharged(jobs: list[Event], charges: list[Event]) -> str | None:
    """Why what was delivered was not all charged; None when it was."""
    missing = _invoices(jobs) - _invoices(charges)
    if str(jobs[0].detail.get("invoice")) in missing:
        return "the invoice was never charged, although it was delivered again with nothing wrong"
    if missing:
        return f"the customer's next invoice, {min(missing)}, was not charged, delivered with nothing wrong any more"
    return None


def _hasty(events: History, jobs: list[Event], charges: list[Event]) -> str | None:
    """Why never charged would be said too early: an invoice of the customer's own next is delivered once."""
    if str(jobs[0].detail.get("invoice")) in _invoices(charges):
        return None
    clean = _clean_deliveries(events, jobs)
    for_ms = max(end.t_ms for end in events.select("ended", who="C")) - clean[0].t_ms
    if for_ms >= CLEAN_LEASES * _ttl_ms(jobs):
        return None
    return f"the invoice was not charged, but it was delivered again with nothing wrong for {for_ms:.0f} ms only"


# --- what keeps a verdict from being one ---


def _harness_broken(events: History, jobs: list[Event]) -> str | None:
    """Why nothing at all can be concluded, not even from two charges."""
    if failed := events.select("harness-failed"):
        return _reason(failed)
    if not jobs or jobs[0].who != "A":
        return "the history is incomplete: it does not begin with a delivery to A"
    if _ttl_ms(jobs) <= 0:
        return "the history is incomplete: it does not say for how long the lock was asked"
    if not events.select("judged", witness="queue"):
        return "the history is incomplete: the money was never counted"
    return contradiction(events)


def _disturbed(events: History, jobs: list[Event]) -> str | None:
    """What else than the fault may have decided the outcome, or may still."""
    if died := events.select("server-died"):
        return _reason(died)
    if events.select("processor-restarted"):
        return "the processor was started again while the experiment ran"
    if unstarted := events.select("not-started"):
        return f"a worker could not be started: {_reason(unstarted)}"
    worst = None if _is_baseline(events) else _worst_stall(events)  # where nothing goes wrong a stall decides nothing
    if worst is not None and worst[0] > STALL_FRACTION * _ttl_ms(jobs):
        return f"the machine stood still: {worst[1]} waited {worst[0]:.0f} ms for a CPU"
    ended = {(end.who, end.detail.get("delivery")): end.t_ms for end in events.select("ended", witness="queue")}
    for job in jobs:
        end_ms = ended.get((job.who, job.detail.get("delivery")))
        if end_ms is None or end_ms < job.t_ms - CLOCK_TOLERANCE_MS:
            return f"the history is incomplete: delivery {job.detail.get('delivery')} to {job.who} never ended"
    counted_ms = events.select("judged")[0].t_ms + CLOCK_TOLERANCE_MS
    if late := [event for event in events if event.what in _GOING_ON and event.t_ms > counted_ms]:
        return f"the money was counted too early: {late[0].what} ({late[0].who}) came after it"
    return unfinished(events) or two_holders(events)


def _worst_stall(events: History) -> tuple[float, str] | None:
    """How long the machine stood still at most, in ms, and for whom; a stall of unknown length has no end."""
    stalls = [(number(e.detail.get("ms"), _NEVER), str(e.detail.get("of", "?"))) for e in events.select("stall")]
    return max(stalls, default=None)


def _aside(events: History) -> str:
    worst = _worst_stall(events)
    return "" if worst is None else f" (the machine stood still meanwhile: {worst[1]}, {worst[0]:.0f} ms)"


def _not_tried(events: History, jobs: list[Event], *, landed: bool) -> str | None:
    """Why the subject was not put to the test at all."""
    struck, lifted = events.select("fault-struck"), events.select("fault-lifted")
    if not landed:
        missing = events.select("not-landed")
        return "the fault did not land: " + (_reason(missing) if missing else "no second witness saw it")
    if not struck or struck[0].t_ms < jobs[0].t_ms - CLOCK_TOLERANCE_MS:
        return "the history is incomplete: the fault landed, but nobody noted when it struck, with A at work"
    if not lifted or lifted[0].t_ms < struck[0].t_ms - CLOCK_TOLERANCE_MS:
        return "the history is incomplete: it does not say when the fault was lifted, after it had struck"
    if not _clean_deliveries(events, jobs):
        return "the history is incomplete: the job was not delivered to C with nothing wrong any more"
    return None


def _clean_deliveries(events: History, jobs: list[Event]) -> list[Event]:
    """The deliveries of the job's own invoice to C after the fault was lifted."""
    lifted_ms = min((event.t_ms for event in events.select("fault-lifted")), default=_NEVER)
    own = jobs[0].detail.get("invoice")
    return [j for j in jobs if j.who == "C" and j.detail.get("invoice") == own and j.t_ms >= lifted_ms]


def _unearned(events: History, *, contended: bool) -> str | None:
    """Why one charge proves nothing."""
    if hung := [event for event in events.select("killed") if "delivery" in event.detail]:
        return f"{hung[0].who} did not end and was killed by the harness: what else it would have done nobody knows"
    if not contended:
        return (
            "B never contended: none of its messages was under way after A's lease should have run out and before A "
            "was let go"
        )
    return None


def _landed(events: History) -> bool:
    """Whether somebody saw the fault who is not the part that injected it. Of a baseline nothing was to be seen."""
    injectors = set() if _is_baseline(events) else set(_HARNESS_OWN)
    if any(event.what in _MEDDLING and event.witness == "tap" for event in events):
        injectors.add("tap")
    return not events.select("not-landed") and any(e.witness not in injectors for e in events.select("landed"))


def _is_baseline(events: History) -> bool:
    struck = events.select("fault-struck")
    return bool(struck) and all(event.detail.get("fault") == NO_FAULT for event in struck)


def _requests_of_b(events: History) -> list[Event]:
    return events.select("request", who="B", witness="tap")
