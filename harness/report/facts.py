"""What an experiment's events say about leases, charges and processes: read once, told by every output.

The text timeline, the sentence in money terms and the drawing all start here, so they cannot disagree. Events are plain
dicts as in results.json; keys that are missing are treated as not known, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

WORKERS = ("A", "B", "C")
Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lease:
    """One time that one worker had the lock, by the server's account.

    end: expired, released or lost; open when the history ends with the lock held. due_ms: when it would have run out
    without a further renewal, None for a lock without a lease.
    """

    holder: str
    start_ms: float
    end_ms: float | None
    end: str
    lease_ms: float | None
    due_ms: float | None
    token: Any
    renewals: tuple[float, ...] = ()

    def over_at(self, ms: float) -> bool:
        return self.end_ms is not None and self.end_ms <= ms


@dataclass(frozen=True, slots=True)
class Charge:
    """One charge: at_ms is when it was committed, None for one that was only asked for."""

    at_ms: float | None
    who: str
    token: Any = None
    key: str | None = None
    charge: str | None = None
    amount: int | None = None
    currency: str | None = None
    customer: str | None = None
    invoice: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A charge the processor said no to."""

    at_ms: float
    who: str
    code: str
    token: Any
    invoice: str | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when something of somebody lasted; end_ms is None when the history ends before it does.

    invoice, status: of a delivery, what was to be charged and how it ended (None: killed, or it still runs).
    """

    who: str
    start_ms: float
    end_ms: float | None
    label: str = ""
    invoice: str | None = None
    status: int | None = None


@dataclass(slots=True)
class Facts:
    """All of it, in order of time. jobs: what the queue asked to be charged, where the history says, each invoice once:
    the experiment's own first, then the customer's next ones."""

    leases: list[Lease] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)
    replays: list[Span] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    freezes: list[Span] = field(default_factory=list)
    deliveries: list[Span] = field(default_factory=list)
    faults: list[Span] = field(default_factory=list)
    in_flight: list[Span] = field(default_factory=list)
    killed: dict[str, float] = field(default_factory=dict)
    jobs: list[Charge] = field(default_factory=list)
    last_ms: float = 0.0

    def charges_of(self, invoice: str | None) -> list[Charge]:
        """The charges for one invoice, in order of time where it is known."""
        mine = [charge for charge in self.charges if self.concerns(charge.invoice, invoice)]
        return sorted(mine, key=lambda charge: float("inf") if charge.at_ms is None else charge.at_ms)

    def concerns(self, named: str | None, invoice: str | None) -> bool:
        """Whether what names this invoice is about that one; what names none is about the experiment's own."""
        own = self.jobs[0].invoice if self.jobs else None
        return own is None or (named or own) == (invoice or own)

    def lease_of(self, who: str, ms: float) -> Lease | None:
        """The lease of who that was in force at ms, or else the last one before it."""
        held = [lease for lease in self.leases if lease.holder == who and lease.start_ms <= ms]
        return held[-1] if held else None


def ordered(events: Iterable[Event]) -> list[Event]:
    """The events in order of time; those at the same moment stay as they were."""
    return sorted(events, key=lambda event: float(event["t_ms"]))


def facts(events: Iterable[Event]) -> Facts:
    """Reads a history."""
    found = Facts()
    reader = _Reader(found)
    for event in ordered(events):
        found.last_ms = max(found.last_ms, float(event["t_ms"]))
        reader.read(event)
    reader.finish()
    return found


class _Reader:
    """Keeps what is open while the events go by."""

    def __init__(self, found: Facts) -> None:
        self._found = found
        self._held: list[Lease] = []
        self._freezing: dict[str, float] = {}
        self._running: dict[str, Span] = {}
        self._flying: dict[str, list[Span]] = {}
        self._carried: list[tuple[float, str, Any]] = []
        self._fault: list[tuple[float, str]] = []
        self._ledger: list[Charge] = []

    def read(self, event: Event) -> None:
        what, who, at = str(event["what"]), str(event["who"]), float(event["t_ms"])
        if event.get("token") is not None and event["witness"] in ("tap", "processor", "worker"):
            self._carried.append((at, who, event["token"]))
        if what.startswith("lock-"):
            self._lock(what, who, at, event)
        elif what.startswith("charge"):
            self._charge(what, who, at, event)
        elif what == "delivered":
            job = _charge_from(None, who, event)
            self._running[who] = Span(who, at, None, invoice=job.invoice)
            if job.invoice is not None and all(known.invoice != job.invoice for known in self._found.jobs):
                self._found.jobs.append(job)
        elif what == "ended":
            self._end(who, at, event.get("exit"))
        elif what == "killed":
            self._found.killed[who] = at
            self._thaw(who, at)
            self._end(who, at, None)
        elif what == "stopped":
            self._freezing.setdefault(who, at)
        elif what == "continued":
            self._thaw(who, at)
        elif what == "fault-struck":
            self._fault.append((at, str(event.get("fault", "fault"))))
        elif what == "fault-lifted" and self._fault:
            start, label = self._fault.pop(0)
            self._found.faults.append(Span("fault", start, at, label))

    def finish(self) -> None:
        found = self._found
        found.leases.extend(self._held)
        found.leases.sort(key=lambda lease: lease.start_ms)
        found.leases = [self._with_token(lease) for lease in found.leases]
        found.freezes.extend(Span(who, at, None) for who, at in self._freezing.items())
        found.deliveries.extend(self._running.values())
        found.deliveries.sort(key=lambda span: span.start_ms)
        found.faults.extend(Span("fault", at, None, label) for at, label in self._fault)
        found.in_flight.extend(span for spans in self._flying.values() for span in spans)
        found.in_flight.sort(key=lambda span: span.start_ms)
        found.charges = _with_ledger(found.charges, self._ledger)

    def _with_token(self, lease: Lease) -> Lease:
        """The lock's server need not know the token: it is then the one the holder was first seen to carry."""
        if lease.token is not None:
            return lease
        later = [other.start_ms for other in self._found.leases if other.start_ms > lease.start_ms]
        until = min((start for start in later if self._holder_at(start) == lease.holder), default=float("inf"))
        carried = (token for at, who, token in self._carried if who == lease.holder and lease.start_ms <= at < until)
        return replace(lease, token=next(carried, None))

    def _holder_at(self, start_ms: float) -> str:
        return next(lease.holder for lease in self._found.leases if lease.start_ms == start_ms)

    def _lock(self, what: str, who: str, at: float, event: Event) -> None:
        lease_ms = _number(event.get("lease_ms"))
        if what == "lock-granted":
            if who in WORKERS:
                due = None if lease_ms is None else at + lease_ms
                self._held.append(Lease(who, at, None, "open", lease_ms, due, event.get("token")))
            return
        held = self._lease_meant(who)
        if held is None:
            return
        self._held.remove(held)
        if what == "lock-renewed":
            extended = held.lease_ms if lease_ms is None else lease_ms
            due = None if extended is None else at + extended
            self._held.append(replace(held, due_ms=due, renewals=(*held.renewals, at)))
        else:
            self._found.leases.append(replace(held, end_ms=at, end=what.removeprefix("lock-")))

    def _lease_meant(self, who: str) -> Lease | None:
        """The lease an event is about: its worker's, or where it names none the oldest that is open."""
        meant = [lease for lease in self._held if lease.holder == who or who not in WORKERS]
        return meant[0] if meant else None

    def _charge(self, what: str, who: str, at: float, event: Event) -> None:
        if what == "charge":
            self._ledger.append(_charge_from(at, who, event))
        elif what == "charge-arrived":
            self._flying.setdefault(who, []).append(Span(who, at, None))
        elif what == "charge-committed":
            self._land(who, at, "committed")
            self._found.charges.append(_charge_from(at, who, event))
        elif what == "charge-refused":
            self._land(who, at, "refused")
            code, token = str(event.get("code", "refused")), event.get("token")
            self._found.refusals.append(Refusal(at, who, code, token, event.get("invoice")))
        elif what == "charge-replayed":
            self._land(who, at, "replayed")
            self._found.replays.append(Span(who, at, at, invoice=event.get("invoice")))
        elif what == "charge-answered":
            spans = self._flying.get(who, [])
            answered = next((span for span in spans if span.end_ms is not None), None)
            if answered is not None:
                spans.remove(answered)
                self._found.in_flight.append(replace(answered, end_ms=at))

    def _land(self, who: str, at: float, label: str) -> None:
        """The oldest charge of who that has no outcome yet has one now; it may still wait to be answered."""
        spans = self._flying.get(who, [])
        for number, span in enumerate(spans):
            if span.end_ms is None:
                spans[number] = replace(span, end_ms=at, label=label)
                return

    def _thaw(self, who: str, at: float) -> None:
        if who in self._freezing:
            self._found.freezes.append(Span(who, self._freezing.pop(who), at))

    def _end(self, who: str, at: float, status: int | None) -> None:
        if who in self._running:
            self._found.deliveries.append(replace(self._running.pop(who), end_ms=at, status=status))


def _charge_from(at: float | None, who: str, event: Event) -> Charge:
    amount = event.get("amount")
    return Charge(
        at_ms=at,
        who=who,
        token=event.get("token", event.get("fencing_token")),
        key=event.get("key", event.get("idempotency_key")),
        charge=event.get("charge", event.get("id")),
        amount=amount if isinstance(amount, int) else None,
        currency=event.get("currency"),
        customer=event.get("customer"),
        invoice=event.get("invoice"),
    )


def _with_ledger(committed: list[Charge], ledger: list[Charge]) -> list[Charge]:
    """The charges of the processor's log, completed from the ledger; those only the ledger knows come last."""
    by_id = {charge.charge: charge for charge in ledger if charge.charge is not None}
    whole = []
    for charge in committed:
        entry = by_id.pop(charge.charge, None) if charge.charge is not None else None
        if entry is not None:
            charge = replace(
                charge,
                token=charge.token if charge.token is not None else entry.token,
                amount=entry.amount if entry.amount is not None else charge.amount,
                currency=entry.currency or charge.currency,
                customer=entry.customer or charge.customer,
                invoice=entry.invoice or charge.invoice,
            )
        whole.append(charge)
    return whole + list(by_id.values())


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
