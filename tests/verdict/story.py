"""One experiment told plainly, and its two forms: events for harness.verdict, a plain history for tests/model/judge.py.

The two forms share nothing but the story. Times are whole milliseconds since A was delivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from model import judge as plain

from harness.history import Event
from harness.verdict import NO_FAULT

TOLERANCE_MS = 5.0
"""CLOCK_TOLERANCE_MS, by the issue."""
BILL = plain.Bill()


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that a worker's tap saw leave, and when the answer to it came back (None: never)."""

    who: str
    at: int
    answered: int | None = None
    charge: bool = False
    status: int | None = None
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class Came:
    """A charge request, or a read, that reached the processor; outcome is what its log says of it, if it does."""

    who: str
    at: int
    token: int | None = None
    outcome: str | None = "charge-refused"
    read: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A charge, in the ledger or in the processor's log."""

    id: str
    who: str
    at: int
    token: int | None = None
    bill: plain.Bill = BILL


@dataclass(frozen=True, slots=True)
class Held:
    """One lease by the server's account; how it ended is the event that says so."""

    who: str
    granted: int
    over: int | None = None
    how: str = "lock-expired"


@dataclass(frozen=True, slots=True)
class Worker:
    """One delivery. ended is None where nobody saw it end; hung: the harness ended it."""

    who: str
    began: int
    ended: int | None
    hung: bool = False


@dataclass(frozen=True, slots=True)
class Story:
    """An experiment. landed_by: the witnesses who say that the fault landed; meddled: the tap held or dropped."""

    workers: tuple[Worker, ...]
    sent: tuple[Sent, ...]
    came: tuple[Came, ...]
    ledger: tuple[Row, ...]
    log: tuple[Row, ...]
    held: tuple[Held, ...]
    struck: int | None
    let_go: int | None
    judged: int | None
    landed_by: frozenset[str] = frozenset({"kernel"})
    meddled: bool = False
    not_landed: bool = False
    ttl_ms: int = 1000
    lock: str | None = "lock:{customer}"
    stall_ms: float = 0.0
    died: bool = False
    restarted: bool = False
    unstarted: bool = False
    failed: bool = False
    baseline: bool = False

    @property
    def clean(self) -> list[Worker]:
        """The deliveries to C after A was let go."""
        return [w for w in self.workers if w.who == "C" and self.let_go is not None and w.began >= self.let_go]


FROZEN = Story(
    workers=(Worker("A", 0, 1320), Worker("B", 20, 1150), Worker("C", 1330, 1400)),
    sent=(
        Sent("A", 45, 1303, charge=True, status=409),
        Sent("B", 60, 61),
        Sent("B", 1090, 1091),
        Sent("B", 1100, 1111, charge=True, status=201),
    ),
    came=(Came("B", 1101, None, "charge-committed"), Came("A", 1301)),
    ledger=(Row("ch-1", "B", 1110),),
    log=(Row("ch-1", "B", 1110),),
    held=(Held("A", 10, 1010), Held("B", 1090, 1140, "lock-released")),
    struck=50,
    let_go=1300,
    judged=1410,
)
"""A was frozen with its charge on the way; its lease ran out, B charged; A woke up and was refused."""
BARE = replace(FROZEN, held=(Held("A", 10),), sent=FROZEN.sent[:1])
"""The same, but B sent nothing, and nobody saw A's lease end."""


# --- as the plain judge wants it ---


def as_plain(story: Story) -> plain.History:
    clean = story.clean
    return plain.History(
        ttl_ms=story.ttl_ms,
        charges=tuple(_charge(row) for row in story.ledger),
        log=tuple(_charge(row) for row in story.log),
        leases=tuple(
            plain.Lease(h.who, h.granted, plain.NEVER if h.over is None else h.over, released=h.how == "lock-released")
            for h in story.held
        ),
        arrivals=tuple(
            plain.Arrival(came.at, came.who, came.token, not came.read, came.outcome is not None) for came in story.came
        ),
        departures=tuple(
            plain.Departure(
                sent.at,
                sent.who,
                sent.answered is not None,
                sent.dropped,
                sent.answered if sent.status == 201 else None,
            )
            for sent in story.sent
            if sent.charge
        ),
        misses_short_locks=str(story.lock).startswith("advisory lock"),
        contacts=tuple(_contacts(story)),
        struck_ms=story.struck,
        let_go_ms=story.let_go,
        landed_by=frozenset() if story.not_landed else story.landed_by - {"queue", "worker", "toxiproxy"},
        injected_by="tap" if story.meddled else "queue",
        clean_ms=max(w.ended or 0 for w in clean) - clean[0].began if clean else None,
        stalled_ms=story.stall_ms,
        clock_error_ms=TOLERANCE_MS,
        died=("redis",) * story.died + ("processor",) * story.restarted,
        unstarted=("B",) * story.unstarted,
        hung=tuple(worker.who for worker in story.workers if worker.hung),
        missing=tuple(_missing(story)),
        misbehaved="the tap broke" if story.failed else None if story.judged is not None else "nobody counted",
    )


def _charge(row: Row) -> plain.Charge:
    return plain.Charge(row.at, row.who, row.bill, row.token, row.id)


def _missing(story: Story) -> Iterator[str]:
    for worker in story.workers:
        if worker.ended is None or worker.ended < worker.began - TOLERANCE_MS:
            yield f"the end of {worker.who}"
    last = max(
        *(worker.ended or worker.began for worker in story.workers),
        *(sent.at for sent in story.sent),
        *(row.at for row in (*story.ledger, *story.log)),
        *(came.at for came in story.came if not came.read),
        story.let_go or 0,
    )
    if story.judged is not None and last > story.judged + TOLERANCE_MS:
        yield "a count at the end"


def _contacts(story: Story) -> Iterator[tuple[float, float]]:
    """B's messages: one that is never answered is waited for until B does something else, or ends."""
    of_b = [sent for sent in story.sent if sent.who == "B"]
    ends = [worker.ended for worker in story.workers if worker.who == "B" and worker.ended is not None]
    for sent in of_b:
        later = [other.at for other in of_b if other.at > sent.at] + [end for end in ends if end > sent.at]
        over = min(later, default=sent.at) if sent.answered is None else sent.answered
        yield sent.at, max(sent.at, over)


# --- as the harness records it ---


def as_events(story: Story) -> list[Event]:
    return [*_of_queue(story), *_of_taps(story), *_of_servers(story)]


def _of_queue(story: Story) -> Iterator[Event]:
    deliveries: dict[str, int] = {}
    for worker in story.workers:
        number = deliveries[worker.who] = deliveries.get(worker.who, 0) + 1
        yield Event(worker.began, "queue", worker.who, "delivered", {
            "delivery": number, "customer": BILL.customer, "invoice": BILL.invoice, "amount": BILL.amount,
            "currency": BILL.currency, "ttl_ms": story.ttl_ms, "lock": story.lock,
        })  # fmt: skip
        if worker.hung:
            yield Event(worker.ended or worker.began, "kernel", worker.who, "killed", {"delivery": number})
        if worker.ended is not None:
            yield Event(worker.ended, "queue", worker.who, "ended", {"exit": 0, "delivery": number})
    fault = NO_FAULT if story.baseline else "freeze"
    if story.struck is not None:
        yield Event(story.struck, "queue", "fault", "fault-struck", {"fault": fault, "place": "charge-request"})
    if story.let_go is not None:
        yield Event(story.let_go, "queue", "fault", "fault-lifted")
    end = story.judged or 50_000
    for witness in sorted(story.landed_by):
        yield Event(end, witness, "fault", "landed", {"evidence": "it was seen"})
    if story.not_landed:
        yield Event(end, "queue", "fault", "not-landed", {"reason": "nobody saw it"})
    for there, what in (
        (story.died, "server-died"), (story.unstarted, "not-started"), (story.failed, "harness-failed"),
    ):  # fmt: skip
        if there:
            yield Event(end, "queue", "B", what, {"reason": "it broke"})
    if story.stall_ms:
        yield Event(end, "monitor", "queue", "stall", {"ms": story.stall_ms, "of": "a worker"})
    if story.judged is not None:
        yield Event(story.judged, "queue", "queue", "judged")


def _of_taps(story: Story) -> Iterator[Event]:
    counts: dict[tuple[str, str], int] = {}
    if story.meddled:
        yield Event(story.struck or 0, "tap", "A", "held", {"boundary": "redis.get.1.request"})
    for sent in story.sent:
        label = "processor.post-v1-charges" if sent.charge else "redis.set"
        number = counts[sent.who, label] = counts.get((sent.who, label), 0) + 1
        yield Event(sent.at, "tap", sent.who, "request", {"boundary": f"{label}.{number}.request"})
        if sent.dropped:
            yield Event(sent.at, "tap", sent.who, "dropped", {"boundary": f"{label}.{number}.request"})
        if sent.answered is not None:
            status = {} if sent.status is None else {"status": sent.status}
            yield Event(sent.answered, "tap", sent.who, "reply", {"boundary": f"{label}.{number}.reply", **status})


def _of_servers(story: Story) -> Iterator[Event]:
    for held in story.held:
        yield Event(held.granted, "redis", held.who, "lock-granted", {"lease_ms": story.ttl_ms})
        if held.over is not None:
            yield Event(held.over, "redis", held.who, held.how)
    for came in story.came:
        yield Event(came.at, "processor", came.who, "charges-read" if came.read else "charge-arrived", _token(came))
        if came.outcome not in (None, "charge-committed") and not came.read:
            yield Event(came.at, "processor", came.who, str(came.outcome), _token(came))
    for row in story.log:
        yield Event(row.at, "processor", row.who, "charge-committed", {"charge": row.id, **_token(row)})
    if story.restarted:
        yield Event(story.judged or 0, "processor", "queue", "processor-restarted")
    for row in story.ledger:
        yield Event(row.at, "ledger", row.who, "charge", {
            "charge": row.id, "customer": row.bill.customer, "invoice": row.bill.invoice, "amount": row.bill.amount,
            "currency": row.bill.currency, **_token(row),
        })  # fmt: skip


def _token(of: Came | Row) -> dict[str, int]:
    return {} if of.token is None else {"token": of.token}
