"""Whether the witnesses of one history tell one story: tap, processor's log, ledger, the lock's server. Pure.

Each function returns what does not fit, in a sentence, or None. Within CLOCK_TOLERANCE_MS any order fits.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from harness.history import Event, History

CLOCK_TOLERANCE_MS = 5.0
"""Two processes read one clock, but not at the same moment as the thing they note."""

GONE = ("lock-expired", "lock-released", "lock-lost")
_OUTCOMES = ("charge-committed", "charge-refused", "charge-replayed")
_CHARGE = "processor.post-v1-charges."
_NOT_UNDERSTOOD = "processor.bytes."
_NEVER = float("inf")


def contradiction(events: History) -> str | None:
    """Why tap, processor and ledger cannot all be right: then one of them is broken, and nothing can be concluded."""
    return _ledger_against_log(events) or _log_against_tap(events) or _ledger_against_tap(events) or _fence(events)


def unfinished(events: History) -> str | None:
    """A charge of which nobody knows what became: it may be made after the money was counted."""
    arrived, decided = _by_worker(events, "charge-arrived"), _by_worker(events, *_OUTCOMES)
    for who in sorted(arrived):
        if arrived[who] > decided[who]:
            return f"a charge of {who} reached the processor, and its log does not say what became of it"
    asked = [event for event in events.select("request", witness="tap") if _of_charge(event)]
    settled = {_stem(event) for event in events.select("reply", witness="tap") if _of_charge(event)}
    dropped = {_stem(e) for e in events.select("dropped", witness="tap") if _of_charge(e) and _side(e) == "request"}
    for who in sorted({event.who for event in asked}):
        sent = [stem for event in asked if event.who == who and (stem := _stem(event)) not in dropped]
        if len(sent) > arrived[who] and not settled.issuperset(sent):
            return f"a charge of {who} left its tap and never reached the processor: it may still be on its way"
    return None


def two_holders(events: History) -> str | None:
    """What makes no sense in the server's account of the lock: two hold it at once, or one lost what it never had."""
    leases: list[tuple[float, float, str]] = []
    gone = [event for event in events if event.what in GONE]
    for who in sorted({event.who for event in [*events.select("lock-granted"), *gone]}):
        granted = [event.t_ms for event in events.select("lock-granted", who=who)]
        over = [event.t_ms for event in gone if event.who == who]
        if len(over) > len(granted):
            return f"the account of the lock is incomplete: {who} lost it once more than it was granted"
        leases += zip(granted, [*over, *[_NEVER] * (len(granted) - len(over))], [who] * len(granted), strict=True)
    for granted_ms, over_ms, who in leases:
        if over_ms < granted_ms - CLOCK_TOLERANCE_MS:
            return f"the account of the lock is contradictory: {who} lost it before it was granted"
    for (_, over_ms, holder), (granted_ms, _, other) in pairwise(sorted(leases)):
        if granted_ms < over_ms - CLOCK_TOLERANCE_MS:
            return f"the account of the lock is contradictory: {other} was granted it while {holder} held it"
    return None


def is_charge_request(event: Event) -> bool:
    """Whether a message seen by the tap is a request to charge, or may be one."""
    boundary = str(event.detail.get("boundary"))
    return event.what == "request" and boundary.startswith((_CHARGE, _NOT_UNDERSTOOD))


def number(value: Any, unknown: float) -> float:
    """A number in an event's detail, or what stands for it where there is none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else unknown


def _of_charge(event: Event) -> bool:
    return str(event.detail.get("boundary")).startswith(_CHARGE)


def _stem(event: Event) -> tuple[str, str]:
    return event.who, str(event.detail.get("boundary")).rpartition(".")[0]


def _side(event: Event) -> str:
    return str(event.detail.get("boundary")).rpartition(".")[2]


def _by_worker(events: History, *what: str) -> Counter[str]:
    return Counter(event.who for event in events if event.what in what and event.witness == "processor")


def _ledger_against_log(events: History) -> str | None:
    charges = events.select("charge", witness="ledger")
    ledger = {str(charge.detail.get("charge")): charge for charge in charges}
    if len(ledger) < len(charges):
        return "the ledger is contradictory: it has one charge twice"
    log = {str(e.detail.get("charge")): e for e in events.select("charge-committed", witness="processor")}
    if vanished := log.keys() - ledger.keys():
        return f"the processor's log committed charge {min(vanished)}, which the ledger does not have"
    if events.select("processor-restarted"):
        return None  # its log ended with the process
    if unseen := ledger.keys() - log.keys():
        return f"the ledger has charge {min(unseen)}, which the processor's log never committed"
    for name, committed in log.items():
        if committed.who != ledger[name].who:
            return f"charge {name} is {committed.who}'s by the processor's log, {ledger[name].who}'s by the ledger"
        if abs(committed.t_ms - ledger[name].t_ms) > CLOCK_TOLERANCE_MS:
            return f"the processor's log and the ledger disagree on when charge {name} was committed"
    for who in {event.who for event in log.values()}:
        times = [event.t_ms for event in log.values() if event.who == who]
        arrived = [event.t_ms for event in events.select("charge-arrived", who=who, witness="processor")]
        if len(arrived) < len(times) or any(
            at_ms < came_ms - CLOCK_TOLERANCE_MS for at_ms, came_ms in zip(sorted(times), arrived, strict=False)
        ):
            return f"the processor's log is cut short: a charge of {who} was committed that had not arrived"
    return None


def _log_against_tap(events: History) -> str | None:
    for who in sorted(_by_worker(events, "charge-arrived")):
        requests = [e for e in events.select("request", who=who, witness="tap") if is_charge_request(e)]
        arrived = events.select("charge-arrived", who=who, witness="processor")
        whole = all(map(_of_charge, requests))
        if not requests or (whole and len(arrived) > len(requests)):
            return (
                f"{len(arrived)} charges of {who} reached the processor, but its tap saw {len(requests)} leave: "
                "the tap was bypassed"
            )
        # the n-th to arrive cannot be there before the n-th has left; of what was not understood only the first counts
        for left, came in zip(requests if whole else requests[:1], arrived, strict=False):
            if came.t_ms < left.t_ms - CLOCK_TOLERANCE_MS:
                return (
                    f"a charge of {who} reached the processor {left.t_ms - came.t_ms:.0f} ms before its tap saw it "
                    "leave: the clock of one of them is off"
                )
    return None


def _ledger_against_tap(events: History) -> str | None:
    told = [
        event
        for event in events.select("reply", witness="tap")
        if event.detail.get("status") == 201 and _of_charge(event)
    ]
    charges = events.select("charge", witness="ledger")
    for who in sorted({event.who for event in told}):
        news = [event for event in told if event.who == who]
        made = [charge for charge in charges if charge.who == who]
        if len(news) > len(made):
            return f"{who} was told of {len(news)} new charges, but the ledger has {len(made)} of {who}'s"
        for heard, charge in zip(news, made, strict=False):  # the n-th cannot be told before n were made
            if heard.t_ms < charge.t_ms - CLOCK_TOLERANCE_MS:
                return (
                    f"{who} was told of a new charge {charge.t_ms - heard.t_ms:.0f} ms before the ledger had it: the "
                    "clock of one of them is off"
                )
    return None


def _fence(events: History) -> str | None:
    """The processor takes no token that is lower than one it has seen before."""
    seen = [
        (event.t_ms, event.detail.get("token"))
        for event in events
        if event.witness == "processor" and event.what in ("charge-arrived", "charges-read")
    ]
    for charge in events.select("charge-committed", witness="processor"):
        mine = charge.detail.get("token")
        before = [token for at_ms, token in seen if at_ms < charge.t_ms - CLOCK_TOLERANCE_MS]
        if isinstance(mine, int) and any(isinstance(token, int) and token > mine for token in before):
            return f"the processor accepted token {mine} after it had seen a higher one: its fence is broken"
    return None
