"""What a finished history is worth, by the rules of the design ("What a verdict rests on") and nothing else.

A second opinion on the harness's own verdict: plain data in, a Ruling out. Times are in milliseconds on one clock.
The money decides. Two charges are a double charge whatever else went wrong, unless the harness itself misbehaved (the
ledger, the processor's log and the taps are its own: where they contradict each other, it did); anything that casts
doubt replaces exactly-one and no-charge, never a double charge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

EXACTLY_ONE, DOUBLE_CHARGE, NO_CHARGE, INCONCLUSIVE = "exactly-one", "double-charge", "no-charge", "inconclusive"
STALL_LEASES = 0.25
"""A machine that stalled for longer than this part of a lease decides nothing."""
CLEAN_LEASES = 11
"""C comes each lease for 12, the last time at most a lease before that is over."""
NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Bill:
    """Whom to charge, for what, how much: what the job was given, or what a row of the ledger says."""

    customer: str = "c-1"
    invoice: str = "i-1"
    amount: int = 4200
    currency: str = "EUR"


@dataclass(frozen=True, slots=True)
class Charge:
    """One row of the ledger, or what the processor's log says of it."""

    at_ms: float
    who: str
    bill: Bill = Bill()
    token: int | None = None
    id: str = "ch-1"


@dataclass(frozen=True, slots=True)
class Lease:
    """One holding of the lock by the server's account. over_ms is when it was released, lost or had run out."""

    who: str
    granted_ms: float
    over_ms: float = NEVER
    token: int | None = None
    lock: str = "lock"
    released: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request with a token that the processor let in: a charge, or a read that raises the mark.

    decided: its log says what became of it.
    """

    at_ms: float
    who: str
    token: int | None = None
    is_charge: bool = True
    decided: bool = True


@dataclass(frozen=True, slots=True)
class Departure:
    """A request to charge that a worker's tap saw leave.

    answered: a reply came back; told_ms: when it said that there was a new charge (201); dropped: the tap lost it.
    """

    at_ms: float
    who: str
    answered: bool = True
    dropped: bool = False
    told_ms: float | None = None


@dataclass(frozen=True, slots=True)
class History:
    """One experiment as its witnesses tell it.

    charges is None when the ledger cannot be read; log, arrivals and departures are None where there are none to be
    had. contacts are B's messages on its lock, database or processor link, each with the moment its wait was over.
    struck_ms and let_go_ms are when the fault struck and when A was let go; landed_by are the witnesses who saw it,
    injected_by is the part that injected it (None for a baseline). clean_ms is for how long C came again with nothing
    wrong any more (None: not at all).
    """

    ttl_ms: float
    job: Bill = Bill()
    charges: tuple[Charge, ...] | None = ()
    log: tuple[Charge, ...] | None = None
    leases: tuple[Lease, ...] = ()
    arrivals: tuple[Arrival, ...] | None = None
    departures: tuple[Departure, ...] | None = None
    misses_short_locks: bool = False
    """The server's account of the lock is read now and then."""
    contacts: tuple[tuple[float, float], ...] = ()
    struck_ms: float | None = 0.0
    let_go_ms: float | None = None
    landed_by: frozenset[str] = frozenset()
    injected_by: str | None = None
    clean_ms: float | None = None
    stalled_ms: float = 0.0
    clock_error_ms: float = 0.0
    died: tuple[str, ...] = ()
    """Servers that died and should not have."""
    unstarted: tuple[str, ...] = ()
    """Workers that could not start."""
    hung: tuple[str, ...] = ()
    """Workers that did not end, and were ended by the harness."""
    missing: tuple[str, ...] = ()
    """What the history lacks: a witness that fell silent, a tap not drained, a process not reaped."""
    misbehaved: str | None = None
    """How the harness itself went wrong: a broken tap, an unreadable ledger."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """The verdict and the reason for it."""

    verdict: str
    reason: str


def judge(history: History) -> Ruling:
    """The verdict of one history. Never raises: what makes no sense is inconclusive."""
    if history.charges is None or history.misbehaved is not None:
        return Ruling(INCONCLUSIVE, history.misbehaved or "the ledger could not be read")
    if (lie := next(_lies(history, history.charges), None)) is not None:
        return Ruling(INCONCLUSIVE, lie)
    proper = [charge for charge in history.charges if charge.bill == history.job]
    if len(proper) > 1:
        return Ruling(DOUBLE_CHARGE, f"{len(proper)} charges of {history.job.invoice}")
    if (doubt := next(_doubts(history), None)) is not None:
        return Ruling(INCONCLUSIVE, doubt)
    if not proper:
        if history.clean_ms is None or history.clean_ms < CLEAN_LEASES * history.ttl_ms:
            return Ruling(INCONCLUSIVE, "C did not come for long enough to say that nobody ever charges")
        return Ruling(NO_CHARGE, f"nobody charged {history.job.invoice}")
    if history.hung:
        return Ruling(INCONCLUSIVE, f"{history.hung[0]} had to be ended")
    if not contended(history):
        return Ruling(INCONCLUSIVE, "B never contended after the lease A asked for had passed")
    return Ruling(EXACTLY_ONE, f"one charge of {history.job.invoice}, by {proper[0].who}")


def contended(history: History) -> bool:
    """Whether B was surely there when A's lock could not keep it out any more, and A had not been let go.

    A's lock keeps B out until LOCK_TTL_MS has passed since A took it, or until the server says that it is gone. If A
    never had it by that account, a whole LOCK_TTL_MS after the strike is waited for, unless the account misses things.
    That B was granted the lock itself, with the fault standing and A without it (no more, or not yet), says it all.
    """
    struck, let_go = history.struck_ms, history.let_go_ms
    if struck is None or let_go is None:
        return False
    of_a = sorted((lease for lease in history.leases if lease.who == "A"), key=lambda lease: lease.granted_ms)
    held = [lease for lease in of_a if lease.granted_ms < let_go]
    slack = history.clock_error_ms
    alone = since = struck + slack
    before_a = NEVER
    if held:
        before_a = held[0].granted_ms - slack
        free = min(held[0].granted_ms + history.ttl_ms, _kept_b_out_until(history, held[0], let_go))
        alone, since = max(alone, free), max(since, free + slack)
    elif not history.misses_short_locks:
        since += history.ttl_ms
    for of_b in (lease.granted_ms for lease in history.leases if lease.who == "B"):
        if struck + slack <= of_b < let_go - slack and (of_b >= alone or of_b < before_a):
            return True
    return any(sent < let_go - slack and over > since for sent, over in history.contacts)


def _kept_b_out_until(history: History, lease: Lease, let_go: float) -> float:
    """When a lease of A's was over; never when A charged after it had released it: such a lock guards nothing."""
    charges = [departure.at_ms for departure in history.departures or () if departure.who == "A"]
    unguarded = lease.released and any(lease.over_ms < at_ms < let_go for at_ms in charges)
    return NEVER if unguarded else lease.over_ms


def _lies(history: History, charges: tuple[Charge, ...]) -> Iterator[str]:
    """Two of the harness's own witnesses to the money that cannot both be right, by more than the clock's error."""
    slack = history.clock_error_ms
    if len({charge.id for charge in charges}) < len(charges):
        yield "the ledger has one charge twice"
    if history.log is not None:
        ledger, log = ({(c.id, c.who): c.at_ms for c in told} for told in (charges, history.log))
        if ledger.keys() != log.keys() or any(abs(log[one] - ledger[one]) > slack for one in log):
            yield "the ledger and the processor's log do not have the same charges"
    for who in {departure.who for departure in history.departures or ()}:
        told = [d.told_ms for d in history.departures or () if d.who == who and d.told_ms is not None]
        if not _each_after(told, [charge.at_ms for charge in charges if charge.who == who], slack):
            yield f"{who} was told of a charge that the ledger does not have, or not yet"
    if history.arrivals is None:
        return
    came = [arrival for arrival in history.arrivals if arrival.is_charge]
    for who in {charge.who for charge in charges}:
        if not _each_after(
            [charge.at_ms for charge in charges if charge.who == who], [a.at_ms for a in came if a.who == who], slack
        ):
            yield f"a charge by {who} that never arrived"
    for charge in charges:
        before = [a.token for a in history.arrivals if a.at_ms < charge.at_ms - slack]
        if charge.token is not None and any(token is not None and token > charge.token for token in before):
            yield f"token {charge.token} was accepted after a higher one had arrived"
    if history.departures is not None:
        for who in {arrival.who for arrival in came}:
            left = [departure.at_ms for departure in history.departures if departure.who == who]
            if not _each_after([a.at_ms for a in came if a.who == who], left, slack):
                yield f"a charge of {who} arrived that never left"


def _each_after(effects: list[float], causes: list[float], slack: float) -> bool:
    """Whether every effect can have a cause of its own that came before it."""
    left = sorted(causes)
    return all(left and left.pop(0) <= at_ms + slack for at_ms in sorted(effects))


def _doubts(history: History) -> Iterator[str]:
    for charge in history.charges or ():
        for field in ("customer", "invoice", "amount", "currency"):
            if getattr(charge.bill, field) != getattr(history.job, field):
                yield f"a charge with another {field}"
    if history.injected_by is not None and not history.landed_by - {history.injected_by}:
        yield "nobody but the part that injected it saw the fault land"
    if history.struck_ms is None or history.let_go_ms is None:
        yield "nobody knows when the fault struck, or when A was let go"
    elif history.let_go_ms < history.struck_ms - history.clock_error_ms:
        yield "A was let go before the fault struck"
    if history.clean_ms is None:
        yield "the job was not delivered again with nothing wrong"
    if history.stalled_ms > STALL_LEASES * history.ttl_ms:
        yield f"the machine stalled for {history.stalled_ms:.0f} ms"
    for server in history.died:
        yield f"{server} died"
    for worker in history.unstarted:
        yield f"worker {worker} could not start"
    for what in history.missing:
        yield f"the history lacks {what}"
    yield from _in_flight(history)
    yield from _impossible_leases(history)


def _in_flight(history: History) -> Iterator[str]:
    """Charges that may still be made."""
    if history.arrivals is None:
        return
    if any(arrival.is_charge and not arrival.decided for arrival in history.arrivals):
        yield "a charge is still in flight at the processor"
    came = Counter(arrival.who for arrival in history.arrivals if arrival.is_charge)
    on_the_way = [departure for departure in history.departures or () if not departure.dropped]
    for who, sent in Counter(departure.who for departure in on_the_way).items():
        if sent > came[who] and any(d.who == who and not d.answered for d in on_the_way):
            yield f"a charge of {who} is still on its way"


def _impossible_leases(history: History) -> Iterator[str]:
    slack = history.clock_error_ms
    for lease in history.leases:
        if lease.over_ms < lease.granted_ms - slack:
            yield f"a lease of {lease.who} that was over before it was granted"
    for one, other in combinations(sorted(history.leases, key=lambda lease: (lease.granted_ms, lease.over_ms)), 2):
        if one.lock == other.lock and other.granted_ms < one.over_ms - slack:
            yield f"{other.who} was granted the lock while {one.who} held it, by the server's account"
