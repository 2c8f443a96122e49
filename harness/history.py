"""The ordered events of one experiment, on one clock, from every witness.

The clock is the operating system's monotonic clock, which all processes of one machine share
(clock_gettime(2): CLOCK_MONOTONIC is system-wide); t_ms counts from the start of worker A.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

WITNESSES: Mapping[str, str] = {
    "queue": "the harness as job queue: what it delivered, saw end, froze, killed, lifted",
    "tap": "the relay on a worker's link: messages as they passed",
    "redis": "the Redis server's own account of the lock (keyspace events, PTTL)",
    "postgres": "the PostgreSQL server's own account (pg_locks, pg_stat_activity)",
    "processor": "the payment processor's log of what arrived, committed and was answered",
    "ledger": "the processor's ledger on disk: the only truth about charges",
    "kernel": "the operating system: states of processes and sockets (/proc)",
    "toxiproxy": "Toxiproxy's own account of its toxics",
    "worker": "the worker's own words: kept, never trusted",
    "monitor": "the harness's watch on the machine: late timers, starved processes",
}

WHAT: Mapping[str, str] = {
    # queue
    "delivered": "the job was handed to a worker process",
    "ended": "a worker process ended (exit)",
    "fault-struck": "the fault began (fault, place)",
    "fault-lifted": "the fault ended",
    "landed": "a second witness saw the fault (evidence)",
    "not-landed": "no second witness saw the fault (reason)",
    "inapplicable": "the fault does not concern this subject or stack (reason)",
    "harness-failed": "the harness itself misbehaved; nothing can be concluded (reason)",
    "not-started": "a worker process could not be started (reason)",
    "server-died": "a server ended that should not have (reason)",
    "judged": "everything drained and reaped; the money was counted",
    # tap
    "request": "a request left a worker (boundary)",
    "reply": "a reply reached a worker (boundary)",
    "held": "a message was held (boundary)",
    "let-go": "a held message was delivered late (boundary)",
    "dropped": "a message was never delivered (boundary)",
    "reset": "a connection was reset (RST)",
    "refused": "a connection was refused, or the link refuses from now on",
    # lock
    "lock-granted": "a worker has the lock (lease_ms, token)",
    "lock-renewed": "the lease was extended (lease_ms)",
    "lock-expired": "the lease ran out by the server's account",
    "lock-released": "the lock was let go by a worker",
    "lock-lost": "the server lost the lock (restart, eviction, flush, terminated session)",
    # processor
    "charge-arrived": "a charge request arrived (token, key)",
    "charge-committed": "a charge was committed (charge, token)",
    "charge-refused": "the processor said no (code)",
    "charge-replayed": "an earlier answer was given again for the same idempotency key (charge)",
    "charge-answered": "the answer to a charge request was handed to the processor's socket (charge)",
    "charges-read": "a worker asked which charges there are",
    "intent-voided": "an intent was voided",
    "processor-restarted": "the processor was started again",
    # ledger
    "charge": "one charge in the ledger when the experiment was judged",
    # kernel
    "stopped": "every thread of the worker's processes was seen stopped (threads, processes)",
    "continued": "the processes run again",
    "killed": "the processes are gone",
    # worker
    "said": "a JSON event on the worker's standard output",
    # monitor
    "stall": "the machine stood still (ms, of)",
}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that one witness saw. t_ms: milliseconds since A started. who: A, B, C, fault, lock or queue."""

    t_ms: float
    witness: str
    who: str
    what: str
    detail: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.witness not in WITNESSES:
            raise ValueError(f"unknown witness {self.witness!r}: one of {', '.join(WITNESSES)}")
        if self.what not in WHAT:
            raise ValueError(f"unknown event {self.what!r}: one of {', '.join(WHAT)}")

    def to_json(self) -> dict[str, Any]:
        return {"t_ms": round(self.t_ms, 3), "witness": self.witness, "who": self.who, "what": self.what, **self.detail}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Event:
        rest = {key: value for key, value in data.items() if key not in ("t_ms", "witness", "who", "what")}
        return cls(float(data["t_ms"]), data["witness"], data["who"], data["what"], rest)


def now_ns() -> int:
    """The one clock of all witnesses, in nanoseconds."""
    return time.monotonic_ns()


class History:
    """Events as they are recorded; iteration gives them in order of time."""

    def __init__(self, events: Iterable[Event] = (), started_ns: int | None = None) -> None:
        self._events = list(events)
        self._ordered: list[Event] | None = None
        self.started_ns = now_ns() if started_ns is None else started_ns

    def restart_clock(self) -> None:
        """Makes this moment the zero of t_ms: called as worker A starts."""
        self.started_ns = now_ns()

    def t_ms(self, at_ns: int | None = None) -> float:
        return ((now_ns() if at_ns is None else at_ns) - self.started_ns) / 1e6

    def add(self, witness: str, who: str, what: str, /, *, at_ns: int | None = None, **detail: Any) -> Event:
        """Records an event, now or at at_ns on the one clock."""
        event = Event(self.t_ms(at_ns), witness, who, what, detail)
        self._events.append(event)
        self._ordered = None
        return event

    def __iter__(self) -> Iterator[Event]:
        if self._ordered is None:
            self._ordered = sorted(self._events, key=lambda event: event.t_ms)
        return iter(self._ordered)

    def __len__(self) -> int:
        return len(self._events)

    def select(self, what: str, *, who: str | None = None, witness: str | None = None) -> list[Event]:
        """The events of one kind, in order of time."""
        return [
            event
            for event in self
            if event.what == what
            and (who is None or event.who == who)
            and (witness is None or event.witness == witness)
        ]

    def to_json(self) -> list[dict[str, Any]]:
        return [event.to_json() for event in self]

    @classmethod
    def from_json(cls, data: Iterable[Mapping[str, Any]]) -> History:
        return cls([Event.from_json(item) for item in data], started_ns=0)
