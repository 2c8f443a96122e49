"""The machine the model runs on: one clock, processes that can be frozen and killed, and a wire with a tap on it.

All times are in leases. A program is a generator: it yields Ask (a request to a server) or Sleep, and is sent the
answer. The order of events is fixed by their time and then by when they were scheduled, so a run never varies.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Literal, Protocol

WIRE = 0.001
"""What a message takes between the tap and a server, in leases: not nothing, so that order is defined."""
START = 0.05
"""What a process takes to start, in leases."""

Side = Literal["request", "reply"]


class Lost(Exception):
    """The connection was reset or refused, or the client ran out of patience: the outcome is unknown."""


class Refused(Exception):
    """The processor said no; code is the error's code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Sleep:
    """A step of a program or a server: nothing happens for so many leases."""

    leases: float


@dataclass(frozen=True, slots=True)
class Ask:
    """A step of a program: one request and its reply.

    operation is a method of the server's class, called with the server, the exchange and args. conn names the worker's
    connection, which matters only where the server ties state to it (a Postgres session). timeout is in leases.
    """

    link: str
    role: str
    operation: Callable[..., Any]
    args: tuple[Any, ...] = ()
    conn: str = "main"
    timeout: float | None = None


Program = Generator[Ask | Sleep, Any, Any]
NO_ANSWER = object()
"""What a server's operation returns when it never answers."""


class Clock:
    """Simulated time and what is due."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, leases: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + leases, next(self._order), action))

    def advance(self, leases: float) -> None:
        """Does all that is due within the next so many leases."""
        until = self.now + leases
        while self._due and self._due[0][0] <= until:
            self.now, _, action = heapq.heappop(self._due)
            action()
        self.now = until


@dataclass(eq=False)
class Session:
    """One connection of a process to one server. Postgres keeps locks and open transactions by it."""

    who: str
    link: str
    open: bool = True
    in_flight: int = 0


@dataclass(eq=False)
class Exchange:
    """One request on its way to a server and the reply to it, as the tap names them: link, role, n, side."""

    process: Process
    resume: Callable[[Any], None]
    ask: Ask
    n: int
    session: Session
    value: Any = None
    settled: bool = False

    def settle(self, value: Any) -> None:
        """Gives the program its answer, once: what comes later finds nobody waiting."""
        if not self.settled:
            self.settled = True
            self.session.in_flight -= 1
            self.resume(value)

    @property
    def who(self) -> str:
        return self.process.who

    def at(self, side: Side) -> tuple[str, str, int, Side]:
        return self.ask.link, self.ask.role, self.n, side


class Tap(Protocol):
    """What the wire asks a fault about each message: True when the fault keeps it, and will pass it on or not."""

    def takes(self, exchange: Exchange, side: Side) -> bool: ...


class Wire:
    """worker - tap - server. Latency is between the tap and the server, where Toxiproxy sits."""

    def __init__(self, clock: Clock, serve: Callable[[Exchange], Any], closed: Callable[[Session], None]) -> None:
        self.clock = clock
        self.serve = serve
        self.closed = closed
        self.tap: Tap | None = None
        self.latency: dict[tuple[str, Side, str], float] = {}
        self.seen: list[tuple[float, Exchange, Side]] = []

    def leave(self, exchange: Exchange, side: Side) -> None:
        """A message is at the tap."""
        self.seen.append((self.clock.now, exchange, side))
        if self.tap is None or not self.tap.takes(exchange, side):
            self.pass_on(exchange, side)

    def pass_on(self, exchange: Exchange, side: Side) -> None:
        if side == "reply":
            exchange.settle(exchange.value)
        else:
            self.clock.after(self._delay(exchange, side), partial(self._arrive, exchange))

    def reset(self, exchange: Exchange) -> None:
        """The connection of this exchange is reset at both ends; its message is gone."""
        self.hang_up(exchange.session)
        exchange.settle(Lost(f"{exchange.ask.link} reset"))

    def hang_up(self, session: Session) -> None:
        """Both ends see the connection closed. A client of Redis or HTTP opens another; a Postgres session is over."""
        session.open = False
        self.closed(session)

    def _delay(self, exchange: Exchange, side: Side) -> float:
        return WIRE + self.latency.get((exchange.ask.link, side, exchange.who), 0.0)

    def _arrive(self, exchange: Exchange) -> None:
        outcome = self.serve(exchange)
        if isinstance(outcome, Generator):
            self._work(exchange, outcome)
        else:
            self._answer(exchange, outcome)

    def _work(self, exchange: Exchange, work: Generator[Sleep, None, Any]) -> None:
        """A server that takes its time. It goes on whether or not its client still lives."""
        try:
            pause = next(work)
        except StopIteration as done:
            self._answer(exchange, done.value)
        else:
            self.clock.after(pause.leases, partial(self._work, exchange, work))

    def _answer(self, exchange: Exchange, value: Any) -> None:
        if value is not NO_ANSWER:
            exchange.value = value
            self.clock.after(self._delay(exchange, "reply"), partial(self.leave, exchange, "reply"))


@dataclass(eq=False)
class Process:
    """A worker: a main program and the threads it spawned. exit is what main returned, None when it was killed."""

    who: str
    clock: Clock
    wire: Wire
    over: bool = False
    exit: int | None = None
    ended_at: float = float("inf")
    frozen: bool = False
    _backlog: deque[Callable[[], None]] = field(default_factory=deque)
    _sessions: dict[tuple[str, str], Session] = field(default_factory=dict)
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def start(self, main: Program) -> None:
        self.clock.after(START, lambda: self._resume(main, True, None))

    def spawn(self, program: Program) -> None:
        self.clock.after(0.0, lambda: self._resume(program, False, None))

    def kill(self) -> None:
        self._end(None)

    def thaw(self, last_first: bool = False) -> None:
        """All that came while it was stopped comes now; in which order is the scheduler's business, hence the flag."""
        self.frozen = False
        while self._backlog:
            handle = self._backlog.pop() if last_first else self._backlog.popleft()
            handle()

    def sessions(self, link: str) -> list[Session]:
        return [session for (name, _), session in self._sessions.items() if name == link]

    def _end(self, status: int | None) -> None:
        if not self.over:
            self.over, self.exit, self.ended_at = True, status, self.clock.now
            for session in self._sessions.values():
                self.wire.hang_up(session)

    def _resume(self, program: Program, is_main: bool, value: Any) -> None:
        if self.over:
            return
        if self.frozen:
            self._backlog.append(partial(self._resume, program, is_main, value))
            return
        try:
            step = program.throw(value) if isinstance(value, Exception) else program.send(value)
        except StopIteration as done:
            if is_main:
                self._end(done.value)
        except (Lost, Refused):
            if is_main:
                self._end(1)
        else:
            again = partial(self._resume, program, is_main)
            if isinstance(step, Sleep):
                self.clock.after(step.leases, partial(again, None))
            else:
                self._send(step, again)

    def _send(self, ask: Ask, resume: Callable[[Any], None]) -> None:
        session = self._sessions.setdefault((ask.link, ask.conn), Session(self.who, ask.link))
        if not session.open and ask.link != "postgres":
            session = self._sessions[ask.link, ask.conn] = Session(self.who, ask.link)
        self._counts[ask.link, ask.role] += 1
        exchange = Exchange(self, resume, ask, self._counts[ask.link, ask.role], session)
        session.in_flight += 1
        if not session.open:
            self.clock.after(0.0, partial(exchange.settle, Lost("the session is over")))
            return
        if ask.timeout is not None:
            self.clock.after(ask.timeout, partial(exchange.settle, Lost("timed out")))
        self.wire.leave(exchange, "request")
