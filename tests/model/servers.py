"""The three servers: Redis with keys that expire, Postgres with advisory locks, the processor with mark and ledger.

Every operation takes the exchange that asks for it first. One that takes time is a generator of Sleep.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

from .machine import NO_ANSWER, Clock, Exchange, Lost, Refused, Session, Sleep

LOCK, COUNTER = "lock", "fence"


class Redis:
    """One customer's keys. The lock is gone when its time is up, whoever believes otherwise."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._keys: dict[str, tuple[Any, float | None]] = {}
        self.grants: list[tuple[float, str, float]] = []
        """(when, who, lease) of each lock granted, by this server's account."""
        self.extended_at: float | None = None
        self.released: set[str] = set()
        """The owners that let their lock go themselves."""

    def setup(self, _: Exchange) -> None:
        """HELLO, CLIENT SETINFO, SELECT: messages without a consequence."""

    def get(self, _: Exchange, key: str) -> Any:
        return self.peek(key)

    def set(self, _: Exchange, key: str, value: Any) -> None:
        self._keys[key] = (value, None)

    def acquire(self, exchange: Exchange, owner: str, lease: float) -> bool:
        """SET lock owner NX PX."""
        if self.peek(LOCK) is not None:
            return False
        self._keys[LOCK] = (owner, self.clock.now + lease)
        self.grants.append((self.clock.now, exchange.who, lease))
        return True

    def acquire_with_token(self, exchange: Exchange, owner: str, lease: float) -> int | None:
        """The same and INCR of the counter, in one atomic step. None when the lock is taken."""
        if not self.acquire(exchange, owner, lease):
            return None
        token = int(self.peek(COUNTER) or 0) + 1
        self._keys[COUNTER] = (token, None)
        return token

    def extend(self, _: Exchange, owner: str, lease: float) -> bool:
        """Compare-and-extend."""
        if self.peek(LOCK) != owner:
            return False
        self._keys[LOCK] = (owner, self.clock.now + lease)
        self.extended_at = self.clock.now
        return True

    def release(self, _: Exchange, owner: str) -> bool:
        """Compare-and-delete."""
        if self.peek(LOCK) != owner:
            return False
        del self._keys[LOCK]
        self.released.add(owner)
        return True

    def peek(self, key: str) -> Any:
        value, expires = self._keys.get(key, (None, None))
        return value if expires is None or self.clock.now < expires else None

    def snapshot(self) -> dict[str, tuple[Any, float | None]]:
        return dict(self._keys)

    def become(self, keys: dict[str, tuple[Any, float | None]]) -> None:
        """The server is another one now, or the same with other data."""
        self._keys = dict(keys)


class Postgres:
    """One database: one advisory lock, rows by name, and for each session what it has not committed."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.rows: dict[str, Any] = {}
        self.pooled = False
        """A transaction pooler is in front: sessions outside a transaction share one backend."""
        self.grants: list[tuple[float, str, float]] = []
        self._lock: tuple[object, str] | None = None
        self._uncommitted: dict[Session, dict[str, Any]] = {}

    def setup(self, _: Exchange) -> None:
        """Start-up, authentication: messages without a consequence."""

    def begin(self, exchange: Exchange) -> None:
        self._uncommitted[exchange.session] = {}

    def try_lock(self, exchange: Exchange) -> bool:
        """pg_try_advisory_lock and pg_try_advisory_xact_lock: re-entrant within one backend."""
        backend = self._backend(exchange.session)
        if self._lock is not None and self._lock[0] is not backend:
            return False
        self._lock = (backend, exchange.who)
        self.grants.append((self.clock.now, exchange.who, float("inf")))
        return True

    def unlock(self, exchange: Exchange) -> None:
        if self._lock is not None and self._lock[0] is self._backend(exchange.session):
            self._lock = None

    def read(self, exchange: Exchange, row: str) -> Any:
        """Read committed: every statement sees what others have committed by now, and its own writes."""
        return self._uncommitted.get(exchange.session, {}).get(row, self.rows.get(row))

    def write(self, exchange: Exchange, row: str, value: Any) -> None:
        self._uncommitted.get(exchange.session, self.rows)[row] = value

    def commit(self, exchange: Exchange) -> None:
        self.rows.update(self._uncommitted.pop(exchange.session, {}))
        self.unlock(exchange)

    def insert_if_absent(self, _: Exchange, row: str, value: Any) -> bool:
        return self.rows.setdefault(row, value) is value

    def replace_if(self, _: Exchange, row: str, intent: str, value: Any) -> bool:
        """UPDATE or (value None) DELETE ... WHERE id = intent."""
        if self.rows.get(row) is None or self.rows[row].id != intent:
            return False
        if value is None:
            del self.rows[row]
        else:
            self.rows[row] = value
        return True

    def end_session(self, session: Session) -> None:
        """The backend is gone: what it held is free, what it had not committed never was."""
        self._uncommitted.pop(session, None)
        if self.holds(session):
            self._lock = None

    def holds(self, session: Session) -> bool:
        return self._lock is not None and self._lock[0] is session

    def holder(self) -> str | None:
        return self._lock[1] if self._lock else None

    def in_transaction(self, session: Session) -> bool:
        return session in self._uncommitted

    def _backend(self, session: Session) -> object:
        return self if self.pooled and session not in self._uncommitted else session


@dataclass(frozen=True, slots=True)
class Intent:
    """A reservation: its id, since when, and whether the charge is known to have been made."""

    id: str
    since: float
    confirmed: bool = False

    def confirm(self) -> Intent:
        return replace(self, confirmed=True)


@dataclass(frozen=True, slots=True)
class Charge:
    """One row of the ledger."""

    at: float
    who: str
    invoice: str
    token: int | None
    intent: str | None


@dataclass
class Processor:
    """A ledger, one high-water mark, idempotency keys, intents that were voided; and how slow it is tonight."""

    clock: Clock
    mark: int = 0
    before_commit: float = 0.0
    after_commit: float = 0.0
    voids_bind_at_commit: bool = True
    failures: list[str] = field(default_factory=list)
    """What goes wrong behind the commit of the next charges of A: "error" (a 500) or "silence"."""
    ledger: list[Charge] = field(default_factory=list)
    _stored: dict[str, Charge | None] = field(default_factory=dict)
    _voided: set[str] = field(default_factory=set)

    def charge(
        self,
        exchange: Exchange,
        invoice: str,
        token: int | None = None,
        key: str | None = None,
        intent: str | None = None,
    ) -> Generator[Sleep, None, Any]:
        """A token raises the mark on arrival and is compared with it again when the charge commits."""
        if (no := self._objects_to(token, intent)) is not None:
            return no
        if key is not None and key in self._stored:
            return self._stored[key] or Refused("idempotency_key_in_use")
        if key is not None:
            self._stored[key] = None
        yield Sleep(self.before_commit)
        no = self._objects_to(token, intent if self.voids_bind_at_commit else None)
        if no is not None:
            if key is not None:
                del self._stored[key]
            return no
        made = Charge(self.clock.now, exchange.who, invoice, token, intent)
        self.ledger.append(made)
        if key is not None:
            self._stored[key] = made
        yield Sleep(self.after_commit)
        if exchange.who == "A" and self.failures:
            return NO_ANSWER if self.failures.pop(0) == "silence" else Lost("500: the outcome is unknown")
        return made

    def charges(self, _: Exchange, invoice: str, token: int | None = None) -> Any:
        """A read that carries a token raises the mark too, and is refused when the token is stale."""
        if (no := self._objects_to(token, None)) is not None:
            return no
        return [charge for charge in self.ledger if charge.invoice == invoice]

    def charged_under(self, _: Exchange, intent: str) -> bool:
        return any(charge.intent == intent for charge in self.ledger)

    def void(self, _: Exchange, intent: str) -> Any:
        """A tombstone, also for an intent never seen; an intent that was charged cannot be voided."""
        if self.charged_under(_, intent):
            return Refused("intent_charged")
        self._voided.add(intent)
        return None

    def _objects_to(self, token: int | None, intent: str | None) -> Refused | None:
        if intent in self._voided:
            return Refused("intent_voided")
        if token is not None:
            self.mark = max(self.mark, token)
            if token < self.mark:
                return Refused("stale_fencing_token")
        return None
