"""Made-up but realistic histories: what the witnesses would have recorded, step by step, with a lease of 1000 ms.

Each function returns the events of one experiment as they stand in results.json. They follow the job of the design
(lock, read, charge, record, release) so that the report's words can be checked against what must have happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

TTL_MS = 1000
POLL_MS = 80
INVOICE = {"customer": "cus_ada", "invoice": "inv_2041", "amount": 1999, "currency": "EUR"}
Events = list[dict[str, Any]]


class Tape:
    """Records events the way harness.history does, and knows the steps of the job."""

    def __init__(self, *, tokens: bool = False, link: str = "redis") -> None:
        self.events: Events = []
        self.tokens = tokens
        self.acquire = "evalsha" if tokens else "set"
        self.link = link
        self._count: dict[tuple[str, str], int] = {}

    def add(self, t_ms: float, witness: str, who: str, what: str, **detail: Any) -> None:
        self.events.append({"t_ms": round(t_ms, 3), "witness": witness, "who": who, "what": what, **detail})

    def ask(self, t_ms: float, who: str, label: str, link: str = "redis", wait_ms: float | None = 0.6) -> str:
        """A request, and its reply after wait_ms (None: none yet). Returns the boundary's name without its side."""
        number = self._count[who, label] = self._count.get((who, label), 0) + 1
        name = f"{link}.{label}.{number}"
        self.add(t_ms, "tap", who, "request", boundary=f"{name}.request")
        if wait_ms is not None:
            self.add(t_ms + wait_ms, "tap", who, "reply", boundary=f"{name}.reply")
        return name

    def take(self, t_ms: float, who: str, token: int | None = None) -> None:
        """The lock is asked for and granted, and the paid record read."""
        self.ask(t_ms, who, self.acquire)
        witness = "postgres" if self.link == "postgres" else "redis"
        lease_ms = None if self.link == "postgres" else float(TTL_MS)
        self.add(t_ms + 0.3, witness, who, "lock-granted", lease_ms=lease_ms)
        if self.tokens:
            self.add(t_ms + 0.9, "worker", who, "said", event="acquired", token=token)
        self.ask(t_ms + 1.2, who, "get")

    def poll(self, t_ms: float, until_ms: float, who: str) -> None:
        while t_ms < until_ms:
            self.ask(t_ms, who, self.acquire)
            t_ms += POLL_MS

    def charge(self, t_ms: float, who: str, token: int | None, number: int, slow_ms: float, **key: Any) -> float:
        """Asked for, arrived, committed, answered. Returns when the answer is there."""
        name = self.ask(t_ms, who, "post-v1-charges", "processor", wait_ms=None)
        carried = {"token": token} if self.tokens else {}
        self.add(t_ms + 0.9, "processor", who, "charge-arrived", **carried, **key)
        self.add(t_ms + slow_ms, "processor", who, "charge-committed", charge=f"ch_{number:04d}", **carried, **key)
        self.add(t_ms + slow_ms + 0.2, "processor", who, "charge-answered", charge=f"ch_{number:04d}")
        self.add(t_ms + slow_ms + 0.8, "tap", who, "reply", boundary=f"{name}.reply", status=201)
        return t_ms + slow_ms + 0.8

    def finish(self, t_ms: float, who: str, *, owner: bool, status: int = 0) -> None:
        """The record is written, the lock released, the process ends."""
        self.ask(t_ms + 0.5, who, "set.paid")
        self.ask(t_ms + 1.6, who, "evalsha.release")
        if owner:
            self.add(t_ms + 1.9, "redis", who, "lock-released")
        self.add(t_ms + 4.0, "queue", who, "ended", exit=status)

    def close(self, t_ms: float, charges: list[tuple[str, int | None]]) -> Events:
        """C finds the invoice paid; everything is counted. charges: who, token."""
        self.add(t_ms, "queue", "C", "delivered", **INVOICE)
        self.take(t_ms + 2, "C", 9)
        self.ask(t_ms + 4.5, "C", "evalsha.release")
        self.add(t_ms + 4.8, "redis", "C", "lock-released")
        self.add(t_ms + 7, "queue", "C", "ended", exit=0)
        return self.count(t_ms + 20, charges)

    def count(self, t_ms: float, charges: list[tuple[str, int | None]]) -> Events:
        committed = {e["charge"]: e["t_ms"] for e in self.events if e["what"] == "charge-committed"}
        for number, (who, token) in enumerate(charges, 1):
            name = f"ch_{number:04d}"
            self.add(committed[name], "ledger", who, "charge", charge=name, token=token, key=None, **INVOICE)
        self.add(t_ms, "queue", "queue", "judged")
        return sorted(self.events, key=lambda event: float(event["t_ms"]))


def slow_double(*, slow_ms: float = 2500, place: str = "before-commit") -> Events:
    """naive-ttl: A's charge outlasts its lease, B charges too."""
    tape = Tape()
    _begin(tape, "slow-charge", place)
    tape.poll(8, 1003, "B")
    answered = tape.charge(5, "A", None, 1, slow_ms)
    tape.add(1003.4, "redis", "A", "lock-expired")
    tape.take(1048, "B")
    other = tape.charge(1052, "B", None, 2, slow_ms)
    tape.finish(answered, "A", owner=False)
    tape.add(2051, "redis", "B", "lock-expired")
    tape.finish(other, "B", owner=False)
    tape.add(other + 5, "queue", "fault", "fault-lifted", fault="slow-charge")
    return tape.close(other + 12, [("A", None), ("B", None)])


def slow_fenced() -> Events:
    """fencing, slow before the commit: B's token arrives first, A's charge is refused."""
    tape = Tape(tokens=True)
    _begin(tape, "slow-charge", "before-commit", token=7)
    tape.poll(8, 1003, "B")
    name = tape.ask(5, "A", "post-v1-charges", "processor", wait_ms=None)
    tape.add(5.9, "processor", "A", "charge-arrived", token=7)
    tape.add(1003.4, "redis", "A", "lock-expired")
    tape.take(1048, "B", 8)
    answered = tape.charge(1052, "B", 8, 1, 2500)
    tape.add(2506, "processor", "A", "charge-refused", code="stale_fencing_token", token=7)
    tape.add(2506.6, "tap", "A", "reply", boundary=f"{name}.reply")
    tape.add(2510, "queue", "A", "ended", exit=0)
    tape.add(2051, "redis", "B", "lock-expired")
    tape.finish(answered, "B", owner=False)
    tape.add(answered + 5, "queue", "fault", "fault-lifted", fault="slow-charge")
    return tape.close(answered + 12, [("B", 8)])


def slow_watchdog() -> Events:
    """watchdog: renewed every third of the lease, B waits until A is done and finds the invoice paid."""
    tape = Tape()
    _begin(tape, "slow-charge", "before-commit")
    tape.poll(8, 2510, "B")
    answered = tape.charge(5, "A", None, 1, 2500)
    for beat in range(1, 8):
        tape.ask(3 + beat * 333, "A", "evalsha")
        tape.add(3.3 + beat * 333, "redis", "A", "lock-renewed", lease_ms=TTL_MS)
    tape.finish(answered, "A", owner=True)
    tape.take(2568, "B")
    tape.ask(2571, "B", "evalsha.release")
    tape.add(2571.4, "redis", "B", "lock-released")
    tape.add(2574, "queue", "B", "ended", exit=0)
    tape.add(2576, "queue", "fault", "fault-lifted", fault="slow-charge")
    return tape.close(2580, [("A", None)])


def slow_after_commit() -> Events:
    """fencing, slow after the commit: A charges within its lease, B with a fresh token again."""
    tape = Tape(tokens=True)
    _begin(tape, "slow-charge", "after-commit", token=7)
    tape.poll(8, 1003, "B")
    name = tape.ask(5, "A", "post-v1-charges", "processor", wait_ms=None)
    tape.add(5.9, "processor", "A", "charge-arrived", token=7)
    tape.add(7.2, "processor", "A", "charge-committed", charge="ch_0001", token=7)
    tape.add(1003.4, "redis", "A", "lock-expired")
    tape.take(1048, "B", 8)
    other = tape.charge(1052, "B", 8, 2, 3)
    tape.finish(other, "B", owner=True)
    tape.add(2507, "tap", "A", "reply", boundary=f"{name}.reply")
    tape.finish(2507, "A", owner=False)
    tape.add(2512, "queue", "fault", "fault-lifted", fault="slow-charge")
    return tape.close(2520, [("A", 7), ("B", 8)])


def frozen(*, tokens: bool, place: str = "processor.post-v1-charges.1.request") -> Events:
    """A frozen as its charge leaves; it wakes believing. With tokens the processor refuses it."""
    tape = Tape(tokens=tokens)
    tape.add(0, "queue", "A", "delivered", **INVOICE)
    tape.take(2, "A", 7)
    tape.add(4.98, "tap", "A", "request", boundary="processor.post-v1-charges.1.request")
    tape.add(5, "tap", "A", "held", boundary="processor.post-v1-charges.1.request")
    tape.add(5.2, "queue", "fault", "fault-struck", fault="freeze", place=place)
    tape.add(5.9, "kernel", "A", "stopped", threads=3, processes=1)
    tape.add(6, "kernel", "fault", "landed", evidence="3 of 3 threads of A in state T")
    tape.add(6, "queue", "B", "delivered", **INVOICE)
    tape.poll(8, 1003, "B")
    tape.add(1003.4, "redis", "A", "lock-expired")
    tape.take(1048, "B", 8)
    other = tape.charge(1052, "B", 8, 1, 3)
    tape.finish(other, "B", owner=True)
    tape.add(1066, "kernel", "A", "continued")
    tape.add(1066.2, "queue", "fault", "fault-lifted", fault="freeze")
    tape.add(1066.5, "tap", "A", "let-go", boundary="processor.post-v1-charges.1.request")
    token = {"token": 7} if tokens else {}
    tape.add(1067.4, "processor", "A", "charge-arrived", **token)
    if tokens:
        tape.add(1067.9, "processor", "A", "charge-refused", code="stale_fencing_token", **token)
    else:
        tape.add(1069.9, "processor", "A", "charge-committed", charge="ch_0002")
    tape.add(1070.6, "tap", "A", "reply", boundary="processor.post-v1-charges.1.reply")
    tape.finish(1071, "A", owner=False)
    return tape.close(1090, [("B", 8)] if tokens else [("B", None), ("A", None)])


def crashed(*, free_at_ms: float = 1003, link: str = "redis") -> Events:
    """A killed before its charge left; the next worker gets in when the lock is free, and charges."""
    tape = Tape(link=link)
    tape.add(0, "queue", "A", "delivered", **INVOICE)
    tape.take(2, "A")
    tape.add(4.98, "tap", "A", "request", boundary="processor.post-v1-charges.1.request")
    tape.add(5, "tap", "A", "held", boundary="processor.post-v1-charges.1.request")
    tape.add(5.2, "queue", "fault", "fault-struck", fault="crash", place="charge-request")
    tape.add(5.8, "kernel", "A", "killed")
    tape.add(6, "kernel", "fault", "landed", evidence="pid gone from /proc")
    tape.add(6.1, "tap", "A", "dropped", boundary="processor.post-v1-charges.1.request")
    tape.add(6.2, "queue", "B", "delivered", **INVOICE)
    tape.poll(8, free_at_ms, "B")
    gone = "lock-lost" if link == "postgres" else "lock-expired"
    tape.add(free_at_ms, "postgres" if link == "postgres" else "redis", "A", gone)
    tape.take(free_at_ms + 40, "B")
    answered = tape.charge(free_at_ms + 44, "B", None, 1, 3)
    tape.finish(answered, "B", owner=True)
    tape.add(answered + 6, "queue", "fault", "fault-lifted", fault="crash")
    return tape.close(answered + 12, [("B", None)])


def crashed_after_charge() -> Events:
    """A killed when its charge was made and the reply on its way: B, finding no record of it, charges again."""
    tape = Tape()
    tape.add(0, "queue", "A", "delivered", **INVOICE)
    tape.take(2, "A")
    tape.charge(5, "A", None, 1, 3)
    tape.events = [event for event in tape.events if event.get("status") != 201]
    tape.add(9, "kernel", "A", "killed")
    tape.add(9.2, "tap", "A", "dropped", boundary="processor.post-v1-charges.1.reply")
    tape.add(9.4, "queue", "A", "ended", exit=-9)
    tape.add(10, "queue", "B", "delivered", **INVOICE)
    tape.poll(12, 1003, "B")
    tape.add(1003, "redis", "A", "lock-expired")
    tape.take(1045, "B")
    answered = tape.charge(1050, "B", None, 2, 3)
    tape.finish(answered, "B", owner=True)
    return tape.close(answered + 12, [("A", None), ("B", None)])


def never_charged() -> Events:
    """reserve-confirm-naive: killed between the intent and the charge; nobody takes it up again."""
    tape = Tape()
    tape.add(0, "queue", "A", "delivered", **INVOICE)
    tape.take(2, "A")
    tape.ask(4, "A", "set.intent")
    tape.add(5.8, "queue", "fault", "fault-struck", fault="crash", place="charge-request")
    tape.add(6, "kernel", "A", "killed")
    tape.add(6.2, "kernel", "fault", "landed", evidence="pid gone from /proc")
    tape.add(7, "queue", "B", "delivered", **INVOICE)
    tape.poll(9, 1003, "B")
    tape.add(1003, "redis", "A", "lock-expired")
    tape.take(1045, "B")
    tape.add(1050, "worker", "B", "said", event="skipped", why="somebody has reserved it")
    tape.add(1051, "redis", "B", "lock-released")
    tape.add(1053, "queue", "B", "ended", exit=0)
    tape.add(1060, "queue", "C", "delivered", **INVOICE)
    tape.add(1070, "queue", "C", "ended", exit=0)
    return tape.count(13000, [])


def lock_lost(place: str = "charge-request") -> Events:
    """Redis forgot the lock (FLUSHALL) while A's charge was held; B got in at once."""
    tape = Tape()
    tape.add(0, "queue", "A", "delivered", **INVOICE)
    tape.take(2, "A")
    tape.add(4.98, "tap", "A", "request", boundary="processor.post-v1-charges.1.request")
    tape.add(5, "tap", "A", "held", boundary="processor.post-v1-charges.1.request")
    tape.add(5.2, "queue", "fault", "fault-struck", fault="flushall", place=place)
    tape.add(6.5, "redis", "A", "lock-lost", reason="FLUSHALL")
    tape.add(7, "redis", "fault", "landed", evidence="EXISTS lock:cus_ada is 0")
    tape.add(8, "queue", "B", "delivered", **INVOICE)
    tape.take(12, "B")
    other = tape.charge(16, "B", None, 1, 3)
    tape.finish(other, "B", owner=True)
    tape.add(1100, "tap", "A", "let-go", boundary="processor.post-v1-charges.1.request")
    tape.add(1101, "processor", "A", "charge-arrived")
    tape.add(1103, "processor", "A", "charge-committed", charge="ch_0002")
    tape.finish(1105, "A", owner=False)
    return tape.close(1120, [("B", None), ("A", None)])


def retried() -> Events:
    """One worker charges twice: the reply was lost, and each attempt had a fresh idempotency key."""
    tape = Tape()
    _begin(tape, "lost-reply", "reset-after-commit")
    tape.charge(5, "A", None, 1, 3, key="k-1")
    tape.add(9, "tap", "A", "reset", boundary="processor.post-v1-charges.1.reply")
    answered = tape.charge(60, "A", None, 2, 3, key="k-2")
    tape.finish(answered, "A", owner=True)
    tape.take(90, "B")
    tape.add(95, "redis", "B", "lock-released")
    tape.add(97, "queue", "B", "ended", exit=0)
    return tape.close(110, [("A", None), ("A", None)])


def stalled() -> Events:
    """The machine stood still: nothing can be concluded."""
    tape = Tape()
    _begin(tape, "slow-charge", "before-commit")
    tape.add(400, "monitor", "queue", "stall", ms=612, of="timers fired late")
    tape.charge(5, "A", None, 1, 700)
    tape.finish(720, "A", owner=True)
    return tape.count(800, [("A", None)])


def every() -> Iterator[tuple[str, Events]]:
    """All of them, by name."""
    yield "slow_double", slow_double()
    yield "slow_fenced", slow_fenced()
    yield "slow_watchdog", slow_watchdog()
    yield "slow_after_commit", slow_after_commit()
    yield "frozen_naive", frozen(tokens=False)
    yield "frozen_fenced", frozen(tokens=True)
    yield "crashed", crashed()
    yield "crashed_after_charge", crashed_after_charge()
    yield "never_charged", never_charged()
    yield "lock_lost", lock_lost()
    yield "retried", retried()
    yield "stalled", stalled()


def _begin(tape: Tape, fault: str, place: str, token: int | None = None) -> None:
    tape.add(-3, "queue", "fault", "fault-struck", fault=fault, place=place)
    tape.add(0, "queue", "A", "delivered", **INVOICE)
    tape.take(2, "A", token)
    tape.add(6, "queue", "B", "delivered", **INVOICE)
    tape.add(6.4, "processor", "fault", "landed", evidence="A's charge took 2500 ms, asked for 2500")
