"""The billing job of each variant as a little step program, from the words of the design and nothing else.

Each role is a step: setup, acquire, paid-read, reserve, charge, record, release, renew. What the texts leave open about
how a variant is written stands in Assumptions, so that report.py can say which verdicts depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .assumptions import Assumptions
from .machine import Ask, Clock, Lost, Process, Program, Refused, Sleep
from .servers import Intent, Postgres, Processor, Redis

GAVE_UP = 75
PATIENCE = 8
"""Leases a worker polls for the lock."""
ORPHANED = 3
"""Leases after which reserve-confirm recovers somebody's intent."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of the job: the process it runs in, the invoice, and a name no other delivery has."""

    process: Process
    clock: Clock
    invoice: str
    owner: str
    assume: Assumptions

    @property
    def paid(self) -> str:
        return f"paid:{self.invoice}"

    @property
    def intent(self) -> str:
        return f"intent:{self.invoice}"


@dataclass(frozen=True, slots=True)
class Design:
    """One variant. job is its program; the rest are the parts it is made of."""

    name: str
    job: Callable[[Delivery, Design], Program]
    lease: float = 1.0
    renews: bool = False
    renews_every: float = 1 / 3
    """Leases between renewals."""
    token: bool = False
    asks_processor: bool = False
    key: str | None = None
    """None, "invoice" (one for all attempts of all workers) or "attempt" (a fresh one for each)."""
    attempts: int = 1
    repeats_acquire: bool = False
    """redis-py's default: a command whose reply was lost is sent again."""


@dataclass
class Hold:
    """What a worker believes about its own lock."""

    deadline: float
    lost: bool = False
    done: bool = False

    def ends_before(self, now: float) -> bool:
        return self.lost or now > self.deadline


def acquire(me: Delivery, design: Design) -> Program:
    """Polls for the Redis lock. Returns (time before the request was sent, True or the token), or None in the end."""
    operation = Redis.acquire_with_token if design.token else Redis.acquire
    ask = Ask("redis", "acquire", operation, (me.owner, design.lease))
    until = me.clock.now + PATIENCE
    while me.clock.now < until:
        sent = me.clock.now
        try:
            granted = yield ask
        except Lost:
            if not design.repeats_acquire:
                raise
            continue
        if granted:
            return sent, granted
        yield Sleep(me.assume.poll)
    return None


def release(me: Delivery) -> Ask:
    return Ask("redis", "release", Redis.release, (me.owner,))


def renew(me: Delivery, design: Design, hold: Hold) -> Program:
    """The watchdog's thread: it shares the process, so it is frozen and killed with it."""
    while True:
        yield Sleep(design.lease * design.renews_every)
        if hold.done:
            return
        sent = me.clock.now
        try:
            still_ours = yield Ask("redis", "renew", Redis.extend, (me.owner, design.lease), conn="watchdog")
        except Lost:
            if me.assume.watchdog_outlives_errors:
                continue
            return
        if not still_ours:
            hold.lost = True
            return
        hold.deadline = sent + design.lease


def charge(me: Delivery, design: Design, token: int | None = None, intent: str | None = None) -> Program:
    """Charges, asking again while another request with the key is in flight, and as often as the design retries."""
    for attempt in range(1, design.attempts + 1):
        key = {"invoice": me.invoice, "attempt": f"{me.owner}/{attempt}"}.get(design.key or "")
        timeout = 0.5 if design.attempts > 1 else None
        while True:
            try:
                args = (me.invoice, token, key, intent)
                return (yield Ask("processor", "charge", Processor.charge, args, timeout=timeout))
            except Refused as refused:
                if refused.code != "idempotency_key_in_use":
                    raise
            except Lost:
                if attempt == design.attempts:
                    raise
                break
    return None


def locked_in_redis(me: Delivery, design: Design) -> Program:
    """naive-ttl and all that is made from it."""
    yield Ask("redis", "setup", Redis.setup)
    granted = yield from acquire(me, design)
    if granted is None:
        return GAVE_UP
    hold = Hold(granted[0] + design.lease)
    token = granted[1] if design.token else None
    if design.renews:
        me.process.spawn(renew(me, design, hold))
    try:
        if design.asks_processor:
            paid = yield Ask("processor", "paid-read", Processor.charges, (me.invoice, token))
        else:
            paid = yield Ask("redis", "paid-read", Redis.get, (me.paid,))
        if not paid:
            if design.renews and hold.ends_before(me.clock.now):
                return 1
            yield from charge(me, design, token)
            yield Ask("redis", "record", Redis.set, (me.paid, True))
    except Refused:
        pass
    except Lost:
        hold.done = True
        if me.assume.releases_on_failure:
            yield release(me)
        raise
    hold.done = True
    yield release(me)
    return 0


def reserve_confirm(me: Delivery, design: Design) -> Program:
    """Lock, reserve in Postgres, unlock; then charge under the intent's id, then confirm. An orphan is recovered."""
    yield Ask("redis", "setup", Redis.setup)
    yield Ask("postgres", "setup", Postgres.setup)
    mine, until = Intent(me.owner, me.clock.now), me.clock.now + PATIENCE
    while True:
        if me.clock.now > until or (yield from acquire(me, design)) is None:
            return GAVE_UP
        try:
            there = yield Ask("postgres", "paid-read", Postgres.read, (me.intent,))
            mine = Intent(me.owner, me.clock.now)
            reserved = False
            if there is None:
                reserved = yield Ask("postgres", "reserve", Postgres.insert_if_absent, (me.intent, mine))
            elif not there.confirmed and me.clock.now - there.since > ORPHANED:
                reserved = yield from recover(me, there, mine)
        except Lost:
            if me.assume.releases_on_failure:
                yield release(me)
            raise
        yield release(me)
        if reserved:
            break
        if there is not None and there.confirmed:
            return 0
        if not me.assume.waits_for_intents:
            return GAVE_UP
        yield Sleep(me.assume.poll)
    try:
        yield from charge(me, design, intent=mine.id)
    except Refused:
        yield Ask("postgres", "record", Postgres.replace_if, (me.intent, mine.id, None))
        return 0
    yield Ask("postgres", "record", Postgres.replace_if, (me.intent, mine.id, mine.confirm()))
    return 0


def recover(me: Delivery, orphan: Intent, mine: Intent) -> Program:
    """Confirms an orphan that was charged; voids one that was not and reserves anew. Returns whether it reserved."""
    charged = yield Ask("processor", "recover-read", Processor.charged_under, (orphan.id,))
    if not charged:
        try:
            yield Ask("processor", "void", Processor.void, (orphan.id,))
            return (yield Ask("postgres", "reserve", Postgres.replace_if, (me.intent, orphan.id, mine)))
        except Refused:
            pass
    yield Ask("postgres", "record", Postgres.replace_if, (me.intent, orphan.id, orphan.confirm()))
    return False


def reserve_confirm_naive(me: Delivery, design: Design) -> Program:
    """The intent is in Redis, read then written, and nobody recovers it."""
    yield Ask("redis", "setup", Redis.setup)
    if (yield from acquire(me, design)) is None:
        return GAVE_UP
    there = yield Ask("redis", "paid-read", Redis.get, (me.intent,))
    if there is not None:
        yield release(me)
        return 0
    mine = Intent(me.owner, me.clock.now)
    yield Ask("redis", "reserve", Redis.set, (me.intent, mine))
    yield release(me)
    yield from charge(me, design, intent=mine.id)
    yield Ask("redis", "record", Redis.set, (me.intent, mine.confirm()))
    return 0


def advisory(me: Delivery, _: Design) -> Program:
    """pg-advisory: a session holds the lock over the charge; the paid record is in the same Postgres."""
    work = "lock" if me.assume.one_postgres_session else "work"

    def ask(role: str, operation: Callable[..., Any], *args: Any, conn: str = work) -> Ask:
        return Ask("postgres", role, operation, args, conn=conn)

    yield ask("setup", Postgres.setup, conn="lock")
    if work != "lock":
        yield ask("setup", Postgres.setup)
    until = me.clock.now + PATIENCE
    while not (yield ask("acquire", Postgres.try_lock, conn="lock")):
        if me.clock.now > until:
            return GAVE_UP
        yield Sleep(me.assume.poll)
    if not (yield ask("paid-read", Postgres.read, me.paid)):
        yield Ask("processor", "charge", Processor.charge, (me.invoice,))
        yield ask("record", Postgres.write, me.paid, True)
    yield ask("release", Postgres.unlock, conn="lock")
    return 0


def advisory_xact(me: Delivery, _: Design) -> Program:
    """pg-advisory-xact: one transaction takes the lock, stays open over the charge and writes the paid record."""
    yield Ask("postgres", "setup", Postgres.setup)
    yield Ask("postgres", "begin", Postgres.begin)
    until = me.clock.now + PATIENCE
    while not (yield Ask("postgres", "acquire", Postgres.try_lock)):
        if me.clock.now > until:
            return GAVE_UP
        yield Sleep(me.assume.poll)
    if not (yield Ask("postgres", "paid-read", Postgres.read, (me.paid,))):
        yield Ask("processor", "charge", Processor.charge, (me.invoice,))
        yield Ask("postgres", "record", Postgres.write, (me.paid, True))
    yield Ask("postgres", "release", Postgres.commit)
    return 0


VARIANTS = {
    design.name: design
    for design in (
        Design("naive-ttl", locked_in_redis),
        Design("long-ttl", locked_in_redis, lease=4.0),
        Design("watchdog", locked_in_redis, renews=True),
        Design("fencing", locked_in_redis, token=True),
        Design("watchdog-fencing", locked_in_redis, renews=True, token=True),
        Design("fenced-read", locked_in_redis, renews=True, token=True, asks_processor=True),
        Design("idempotency-key", locked_in_redis, key="invoice"),
        Design("reserve-confirm", reserve_confirm),
        Design("reserve-confirm-naive", reserve_confirm_naive),
        Design("pg-advisory", advisory),
        Design("pg-advisory-xact", advisory_xact),
    )
}
RETRIERS = {
    design.name: design
    for design in (
        Design("retry-without-key", locked_in_redis, attempts=3),
        Design("retry-fresh-key", locked_in_redis, attempts=3, key="attempt"),
        Design("retry-invoice-key", locked_in_redis, attempts=3, key="invoice"),
    )
}
REPEATER = Design("redis-py-defaults", locked_in_redis, repeats_acquire=True)
