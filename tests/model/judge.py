"""What a finished history is worth, by the rules of the design ("What a verdict rests on") and nothing else.

A second opinion on the harness's own verdict: plain data in, a Ruling out. Times are in milliseconds on one clock.
The money decides. Two charges are a double charge whatever else went wrong, unless the harness itself misbehaved;
anything that casts doubt replaces exactly-one and no-charge, never a double charge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

EXACTLY_ONE, DOUBLE_CHARGE, NO_CHARGE, INCONCLUSIVE = "exactly-one", "double-charge", "no-charge", "inconclusive"
STALL_LEASES = 0.25
"""A machine that stalled for longer than this part of a lease decides nothing."""


@dataclass(frozen=True, slots=True)
class Bill:
    """Whom to charge, for what, how much: what the job was given, or what a row of the ledger says."""

    customer: str = "c-1"
    invoice: str = "i-1"
    amount: int = 4200
    currency: str = "EUR"


@dataclass(frozen=True, slots=True)
class Charge:
    """One row of the ledger."""

    at_ms: float
    who: str
    bill: Bill = Bill()
    token: int | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """One holding of the lock by the server's account. over_ms is when it was released, lost or had run out."""

    who: str
    granted_ms: float
    over_ms: float
    token: int | None = None
    lock: str = "lock"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request with a token that the processor let in: a charge, or a read that raises the mark."""

    at_ms: float
    who: str
    token: int | None = None
    is_charge: bool = True


@dataclass(frozen=True, slots=True)
class History:
    """One experiment as its witnesses tell it.

    charges is None when the ledger cannot be read. contacts are the times of B's messages on its lock, database or
    processor link. let_go_ms is when A was let go (None: never, it was killed or ended by itself). landed_by are the
    witnesses who saw the fault land, injected_by is the part that injected it; both are empty for a baseline.
    committed is how many charges of the customer the processor's own log says it committed (None: no log).
    """

    ttl_ms: float
    job: Bill = Bill()
    charges: tuple[Charge, ...] | None = ()
    leases: tuple[Lease, ...] = ()
    arrivals: tuple[Arrival, ...] | None = None
    contacts: tuple[float, ...] = ()
    let_go_ms: float | None = None
    landed_by: frozenset[str] = frozenset()
    injected_by: str | None = None
    committed: int | None = None
    stalled_ms: float = 0.0
    clock_error_ms: float = 0.0
    died: tuple[str, ...] = ()
    """Servers that died and should not have."""
    unstarted: tuple[str, ...] = ()
    """Workers that could not start."""
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
    proper = [charge for charge in history.charges if charge.bill == history.job]
    if len(proper) > 1:
        return Ruling(DOUBLE_CHARGE, f"{len(proper)} charges of {history.job.invoice}")
    doubt = next(_doubts(history), None)
    if doubt is not None:
        return Ruling(INCONCLUSIVE, doubt)
    if not proper:
        return Ruling(NO_CHARGE, f"nobody charged {history.job.invoice}")
    if not contended(history):
        return Ruling(INCONCLUSIVE, "B never contended after the lease A asked for had passed")
    return Ruling(EXACTLY_ONE, f"one charge of {history.job.invoice}, by {proper[0].who}")


def contended(history: History) -> bool:
    """Whether B was surely seen after LOCK_TTL_MS had passed since A took its lock and before A was let go."""
    taken = [lease.granted_ms for lease in history.leases if lease.who == "A"]
    if not taken:
        return False
    earliest = min(taken) + history.ttl_ms + history.clock_error_ms
    latest = float("inf") if history.let_go_ms is None else history.let_go_ms - history.clock_error_ms
    return any(earliest < at_ms < latest for at_ms in history.contacts)


def _doubts(history: History) -> Iterator[str]:
    for charge in history.charges or ():
        for field in ("customer", "invoice", "amount", "currency"):
            if getattr(charge.bill, field) != getattr(history.job, field):
                yield f"a charge with another {field}"
    if history.injected_by is not None and not history.landed_by - {history.injected_by}:
        yield "nobody but the part that injected it saw the fault land"
    if history.stalled_ms > STALL_LEASES * history.ttl_ms:
        yield f"the machine stalled for {history.stalled_ms:.0f} ms"
    for server in history.died:
        yield f"{server} died"
    for worker in history.unstarted:
        yield f"worker {worker} could not start"
    for what in history.missing:
        yield f"the history lacks {what}"
    yield from _contradictions(history)


def _contradictions(history: History) -> Iterator[str]:
    """Two witnesses that cannot both be right, by more than the clock's error."""
    charges = history.charges or ()
    if history.committed is not None and history.committed != len(charges):
        yield f"the processor committed {history.committed} charges, its ledger holds {len(charges)}"
    for lease in history.leases:
        if lease.over_ms < lease.granted_ms - history.clock_error_ms:
            yield f"a lease of {lease.who} that was over before it was granted"
    for one, other in combinations(sorted(history.leases, key=lambda lease: lease.granted_ms), 2):
        if one.lock == other.lock and other.granted_ms < one.over_ms - history.clock_error_ms:
            yield f"{other.who} was granted the lock while {one.who} held it, by the server's account"
    if history.arrivals is None:
        return
    for charge in charges:
        asked = [a for a in history.arrivals if a.is_charge and (a.who, a.token) == (charge.who, charge.token)]
        if not any(arrival.at_ms <= charge.at_ms + history.clock_error_ms for arrival in asked):
            yield f"a charge by {charge.who} that never arrived"
        if charge.token is not None:
            before = [a.token for a in history.arrivals if a.at_ms < charge.at_ms - history.clock_error_ms]
            if any(token is not None and token > charge.token for token in before):
                yield f"token {charge.token} was accepted after a higher one had arrived"
