"""What goes wrong, once, to worker A. A fault keeps the messages it holds and passes them on when it is lifted.

landed is False where the fault met nothing to break: the design is not concerned by it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf

from .assumptions import DEFAULT, Assumptions
from .machine import Exchange, Process, Side
from .servers import COUNTER, LOCK, Postgres
from .world import World

Point = tuple[str, str, int, Side]
CHARGE_REQUEST: Point = ("processor", "charge", 1, "request")
CHARGE_REPLY: Point = ("processor", "charge", 1, "reply")
COUNTER_BEFORE = 8
"""Where the fencing counter and the processor's mark stand after some clean invoices of the customer."""
IDLE = 0.5
"""Postgres' idle timeouts, in leases."""


class Fault:
    """Strikes at one message of A. The base class strikes and does nothing: a clean run."""

    stays_until_a_ends = False

    def __init__(self, point: Point = CHARGE_REQUEST) -> None:
        self.point = point
        self.struck: float | None = None
        self.lifted = False
        self.landed = False
        self.held: list[tuple[Exchange, Side]] = []
        self.world: World
        self.a: Process
        self.deliver: Callable[[str], Process]
        """The queue's: delivers the job once more, to B or C."""
        self.delivered: list[Process]
        """Every worker so far."""
        self.assume = DEFAULT

    def prepare(self, world: World, a: Process, assume: Assumptions) -> None:
        self.world, self.a, self.assume = world, a, assume
        world.processor.voids_bind_at_commit = assume.voids_bind_at_commit

    def takes(self, exchange: Exchange, side: Side) -> bool:
        if exchange.process is not self.a:
            return False
        if self.struck is None and exchange.at(side) == self.point:
            self.struck, self.landed = self.world.clock.now, True
            return self.strike(exchange, side)
        return self.keeps(exchange, side)

    def strike(self, exchange: Exchange, side: Side) -> bool:
        """Does the harm. True when the message is kept back."""
        return False

    def keeps(self, exchange: Exchange, side: Side) -> bool:
        """Whether any other message of A is kept back."""
        return False

    def hold(self, exchange: Exchange, side: Side) -> bool:
        self.held.append((exchange, side))
        return True

    def lift(self) -> None:
        self.lifted = True
        for exchange, side in self.held:
            if not exchange.process.over:
                self.world.wire.pass_on(exchange, side)
        self.held.clear()


class Slow(Fault):
    """The charge takes so many leases, at one of five places. It is lifted when A has ended."""

    stays_until_a_ends = True

    def __init__(self, place: str, leases: float) -> None:
        super().__init__()
        self.place, self.leases = place, leases

    def prepare(self, world: World, a: Process, assume: Assumptions) -> None:
        super().prepare(world, a, assume)
        if self.place == "before-commit":
            world.processor.before_commit = self.leases
        elif self.place == "after-commit":
            world.processor.after_commit = self.leases
        else:
            side: Side = "reply" if self.place == "reply-wire" else "request"
            for who in "A" if self.place == "request-wire-of-a" else "ABC":
                world.wire.latency["processor", side, who] = self.leases

    def lift(self) -> None:
        super().lift()
        self.world.wire.latency.clear()
        self.world.processor.before_commit = self.world.processor.after_commit = 0.0


class Hold(Fault):
    """The message is held; the worker is not."""

    def strike(self, exchange: Exchange, side: Side) -> bool:
        return self.hold(exchange, side)


class Freeze(Hold):
    """The message is held and the process stopped, threads and all. On waking it finds what came meanwhile."""

    def strike(self, exchange: Exchange, side: Side) -> bool:
        self.a.frozen = True
        return super().strike(exchange, side)

    def lift(self) -> None:
        super().lift()
        self.a.thaw(self.assume.thaw_last_first)


class Crash(Fault):
    """The process is killed; the message is never delivered."""

    def strike(self, exchange: Exchange, side: Side) -> bool:
        self.a.kill()
        return True


class Lose(Fault):
    """The message is dropped and the connection reset; the worker lives."""

    def strike(self, exchange: Exchange, side: Side) -> bool:
        self.world.wire.reset(exchange)
        return True


class WithChargeHeld(Fault):
    """Another fault, with A's charge held long enough for the watchdog's renewals to be points."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.point)
        self.fault = fault

    def prepare(self, world: World, a: Process, assume: Assumptions) -> None:
        super().prepare(world, a, assume)
        self.fault.prepare(world, a, assume)

    def strike(self, exchange: Exchange, side: Side) -> bool:
        return self.fault.takes(exchange, side)

    def keeps(self, exchange: Exchange, side: Side) -> bool:
        if exchange.at(side) != CHARGE_REQUEST:
            return self.fault.keeps(exchange, side)
        if self.assume.charge_held == inf:
            return self.hold(exchange, side)
        self.world.clock.after(self.assume.charge_held, partial(self._let_go, exchange))
        return True

    def _let_go(self, exchange: Exchange) -> None:
        if not self.a.over or self.assume.charge_outlives_worker:
            self.world.wire.pass_on(exchange, "request")

    def lift(self) -> None:
        super().lift()
        self.fault.lift()


class Partition(Fault):
    """A's link to Redis only, from the strike until it heals: late, refused or reset."""

    def __init__(self, kind: str, point: Point) -> None:
        super().__init__(point)
        self.kind = kind

    def strike(self, exchange: Exchange, side: Side) -> bool:
        self.landed = False
        return self.assume.partition_holds_charge and self.hold(exchange, side)

    def keeps(self, exchange: Exchange, side: Side) -> bool:
        if self.struck is None or self.lifted or exchange.ask.link != "redis":
            return False
        self.landed = True
        if self.kind == "late":
            return self.hold(exchange, side)
        self.world.wire.reset(exchange)
        return True


class RedisLoses(Hold):
    """Redis loses A's lock while A's charge or the reply to it is held. with_counter: the counter stood at 8 before."""

    def __init__(self, kind: str, point: Point, with_counter: bool = False) -> None:
        super().__init__(point)
        self.kind, self.with_counter = kind, with_counter
        self.closes_connections = kind in ("restart", "aof", "aof-cut", "failover")

    def prepare(self, world: World, a: Process, assume: Assumptions) -> None:
        super().prepare(world, a, assume)
        if self.with_counter:
            world.redis.become({COUNTER: (COUNTER_BEFORE, None)})
            world.processor.mark = COUNTER_BEFORE
        self.before_a = world.redis.snapshot()

    def strike(self, exchange: Exchange, side: Side) -> bool:
        redis = self.world.redis
        before = {key: value for key in redis.snapshot() if (value := redis.peek(key)) is not None}
        mine = {key for key in before if key == LOCK or key.startswith("intent:")}
        after = redis.snapshot()
        if self.kind == "early-expiry":
            after.pop(LOCK, None)
        elif self.kind in ("aof-cut", "failover"):
            after = self.before_a
        elif self.kind == "eviction" and not self.assume.eviction_takes_counter:
            after = {key: entry for key, entry in after.items() if key == COUNTER}
        elif self.kind != "aof":
            after = {}
        redis.become(after)
        gone = {key for key in before if redis.peek(key) != before[key]}
        self.landed = bool(mine & gone) or (self.kind == "aof" and bool(mine))
        if self.with_counter:
            self.landed = COUNTER in gone and before[COUNTER] > COUNTER_BEFORE
        if self.assume.early_let_go is not None:
            self.world.clock.after(self.assume.early_let_go, super().lift)
        return self.hold(exchange, side)

    def keeps(self, exchange: Exchange, side: Side) -> bool:
        if self.struck is None or exchange.ask.link != "redis" or self.assume.revives_connections:
            return False
        fails, self.closes_connections = self.closes_connections, False
        if fails:
            self.world.wire.reset(exchange)
        return fails


class PostgresEnds(Hold):
    """A's session is ended while its charge is held: by its backend, by the wire, or by an idle timeout."""

    def __init__(self, kind: str, point: Point) -> None:
        super().__init__(point)
        self.kind = kind

    def strike(self, exchange: Exchange, side: Side) -> bool:
        self.landed = False
        self.world.clock.after(IDLE if self.kind.startswith("idle") else 0.0, self._end)
        return self.hold(exchange, side)

    def _end(self) -> None:
        postgres = self.world.postgres["A"]
        sessions = [session for session in self.a.sessions("postgres") if session.open and not session.in_flight]
        if self.kind == "terminated":
            sessions = [session for session in sessions if postgres.holds(session)] or sessions
        elif self.kind.startswith("idle"):
            in_transaction = self.kind == "idle-in-transaction"
            sessions = [session for session in sessions if postgres.in_transaction(session) == in_transaction]
        for session in sessions:
            self.landed = True
            self.world.wire.hang_up(session)


class Pooled(Hold):
    """A transaction pooler between every worker and Postgres, and A's charge held."""

    def prepare(self, world: World, a: Process, assume: Assumptions) -> None:
        super().prepare(world, a, assume)
        for postgres in world.postgres.values():
            postgres.pooled = True

    def strike(self, exchange: Exchange, side: Side) -> bool:
        self.landed = bool(self.a.sessions("postgres"))
        return super().strike(exchange, side)


class SecondPostgres(Hold):
    """B's DATABASE_URL is another server, and A's charge is held."""

    def prepare(self, world: World, a: Process, assume: Assumptions) -> None:
        super().prepare(world, a, assume)
        world.postgres["B"] = Postgres(world.clock)

    def strike(self, exchange: Exchange, side: Side) -> bool:
        self.landed = bool(self.a.sessions("postgres"))
        return super().strike(exchange, side)


class ChargeFails(Fault):
    """A's charge commits and is then answered with a 500 ("error") or never ("silence")."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def prepare(self, world: World, a: Process, assume: Assumptions) -> None:
        super().prepare(world, a, assume)
        world.processor.failures = [self.how]
