"""Who held the lock, when, by the server's own account: keyspace events and PTTL of Redis, pg_locks of PostgreSQL.

Nothing here is told by a worker. Which key is the lock is learned in the baseline (harness/baseline.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import RedisError

from harness.history import History, now_ns
from harness.stack.redis import RedisServer

KeyListener = Callable[[str, str], None]
"""Called with (event, key) for every event in one database: set, expire, del, expired, evicted, ..."""

_SUBSCRIBED_TIMEOUT_S = 10.0
_EXPIRY_SLACK_S = 0.004


class KeyspaceWatch:
    """Keyspace events of one Redis server, handed to whoever watches a database (redis.io: Keyspace notifications)."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._listeners: dict[int, KeyListener] = {}
        self._task: asyncio.Task[None] | None = None
        self.broken: str | None = None
        """Why nothing is heard any more; None while the watch works."""

    async def start(self) -> None:
        """Switches the events on and listens. Raises RedisError where the server forbids it."""
        client = self._server.new_client()
        pubsub = client.pubsub()
        try:
            await self._server.enable_events(client)
            await pubsub.psubscribe(*self._server.event_patterns)
            for _ in self._server.event_patterns:
                await pubsub.get_message(timeout=_SUBSCRIBED_TIMEOUT_S)  # a refusal is raised here
        except BaseException:
            await pubsub.aclose()  # type: ignore[no-untyped-call]
            await client.aclose()
            raise
        self._task = asyncio.get_running_loop().create_task(self._listen(pubsub, client))

    async def _listen(self, pubsub: object, client: object) -> None:
        try:
            async for message in pubsub.listen():  # type: ignore[attr-defined]
                if message["type"] != "pmessage":
                    continue
                channel = message["channel"].decode()
                head, _, event = channel.partition("__:")
                listener = self._listeners.get(int(head.removeprefix("__keyevent@")))
                if listener is not None:
                    listener(event, message["data"].decode("utf-8", "backslashreplace"))
        except (RedisError, OSError) as error:
            self.broken = f"the keyspace events of {self._server.host}:{self._server.port} ended: {error}"
        finally:
            await client.aclose()  # type: ignore[attr-defined]

    async def check(self) -> None:
        """Notices that a client has made the server useless for everybody: broken says so from then on."""
        try:
            self.broken = self.broken or await self._server.tampering()
        except (RedisError, OSError):
            return  # that it is gone is noticed by others

    async def follow(self, server: RedisServer) -> None:
        """Watches another server from here on, or the same one once it has been started again."""
        await self.stop()
        self._server = server
        self.broken = None
        await self.start()

    def listen(self, database: int, listener: KeyListener) -> None:
        self._listeners[database] = listener

    def unlisten(self, database: int) -> None:
        self._listeners.pop(database, None)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None


@dataclass(slots=True)
class Lease:
    """One holding of the lock. expires_ns: None where it does not run out (a session's lock)."""

    holder: str
    granted_ns: int
    expires_ns: int | None
    lease_ms: float | None
    renewals_ns: list[int] = field(default_factory=list)
    gone_ns: int | None = None
    why_gone: str | None = None


@dataclass(slots=True)
class LockAccount:
    """The lock of one experiment as its server accounts for it: all leases so far, the current one last."""

    history: History
    leases: list[Lease] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def current(self) -> Lease | None:
        return self.leases[-1] if self.leases and self.leases[-1].gone_ns is None else None

    def first_of(self, who: str) -> Lease | None:
        return next((lease for lease in self.leases if lease.holder == who), None)

    def last_of(self, who: str) -> Lease | None:
        return next((lease for lease in reversed(self.leases) if lease.holder == who), None)

    def granted(self, witness: str, who: str, at_ns: int, expires_ns: int | None, **detail: object) -> None:
        """A lease began. expires_ns is None where it does not run out, or was over before anybody could ask."""
        lease_ms = None if expires_ns is None else round((expires_ns - at_ns) / 1e6, 1)
        self.leases.append(Lease(who, at_ns, expires_ns, lease_ms))
        self.history.add(witness, who, "lock-granted", at_ns=at_ns, lease_ms=lease_ms, **detail)
        self.wake()

    def renewed(self, witness: str, lease_ms: float, at_ns: int) -> None:
        lease = self.current
        if lease is not None:
            lease.expires_ns = at_ns + int(lease_ms * 1e6)
            lease.renewals_ns.append(at_ns)
            self.history.add(witness, lease.holder, "lock-renewed", at_ns=at_ns, lease_ms=lease_ms)
            self.wake()

    def gone(self, witness: str, what: str, at_ns: int, **detail: object) -> None:
        lease = self.current
        if lease is not None:
            lease.gone_ns, lease.why_gone = at_ns, what
            self.history.add(witness, lease.holder, what, at_ns=at_ns, **detail)
            self.wake()

    def wake(self) -> None:
        """Tells whoever waits for a change: of the lock, or of the server that has it."""
        self.changed.set()
        self.changed = asyncio.Event()


Attribution = Callable[[str, str | None], str]
"""(key, value) -> the worker that set it, from what passed the taps: its request carried the value, or came last."""


class RedisLock:
    """Keeps the account of one key in one database up to date, from keyspace events and probes of its PTTL."""

    def __init__(
        self, server: RedisServer, database: int, key: str, account: LockAccount, attribute: Attribution
    ) -> None:
        self.key = key
        self._server = server
        self._database = database
        self._account = account
        self._attribute = attribute
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._value: str | None = None
        self._ends = 0
        self._unprobed_ns: int | None = None
        """When a grant was seen whose lease the server has not been asked for yet."""
        self._probing = 0

    def on_event(self, event: str, key: str) -> None:
        """A keyspace event of the database."""
        if key != self.key:
            return
        at_ns = now_ns()
        if event in _GONE_EVENTS:
            self._grant_unprobed()
            self._ends += 1
            self._cancel_timer()
            self._account.gone(
                "redis", _GONE_EVENTS[event], self._expiry_of(at_ns) if event == "expired" else at_ns, event=event
            )
            return
        if self._account.current is None and not self.unsettled:
            self._unprobed_ns = at_ns
        self._spawn(self.probe(at_ns))

    @property
    def unsettled(self) -> bool:
        """A grant was seen, and whose it is and how long it lasts is being asked."""
        return self._unprobed_ns is not None and self._probing > 0

    def _grant_unprobed(self) -> None:
        """A lock that was let go before the server could be asked for its lease was held all the same."""
        if self._unprobed_ns is not None:
            at_ns, self._unprobed_ns = self._unprobed_ns, None
            self._account.granted("redis", self._attribute(self.key, None), at_ns, None, key=self.key)

    def _expiry_of(self, at_ns: int) -> int:
        lease = self._account.current
        return at_ns if lease is None or lease.expires_ns is None else min(at_ns, lease.expires_ns)

    async def probe(self, at_ns: int | None = None) -> None:
        """Asks the server what is left of the lease, and notes what has changed. Raises RedisError, OSError."""
        before_ns, ends = now_ns(), self._ends
        pttl, value = await self._server.in_database(self._database, ("PTTL", self.key), ("GET", self.key))
        asked_ns = now_ns()
        if ends != self._ends:
            return  # the lock was let go while the server's answer was on its way: it tells of a lease that is over
        text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else None
        current = self._account.current
        if not isinstance(pttl, int) or pttl == -2:
            if current is None:
                return
            if at_ns is None or current.granted_ns <= at_ns:
                self._account.gone("redis", self._why_gone(current, asked_ns), self._expiry_of(asked_ns))
            return
        lease_ms = None if pttl < 0 else float(pttl)
        expires_ns = None if lease_ms is None else asked_ns + int(lease_ms * 1e6)
        if current is not None and text is not None and self._value is not None and text != self._value:
            taken_ns = at_ns or asked_ns  # the next owner's grant is noted for this moment too
            self._account.gone("redis", self._why_gone(current, taken_ns), self._expiry_of(taken_ns))
            current = None
        if current is None:
            granted_ns = self._unprobed_ns or at_ns or asked_ns
            self._unprobed_ns = None
            self._value = text
            self._account.granted("redis", self._attribute(self.key, text), granted_ns, expires_ns, key=self.key)
        elif lease_ms is not None and expires_ns is not None and not self._may_be_anothers(current, at_ns, asked_ns):
            earliest_ns = before_ns + int(lease_ms * 1e6)  # PTTL was read somewhere between before_ns and asked_ns
            if current.expires_ns is None or earliest_ns - current.expires_ns > _RENEWAL_NS:
                self._account.renewed("redis", lease_ms, asked_ns)
        self._arm()

    @staticmethod
    def _may_be_anothers(lease: Lease, heard_ns: int | None, asked_ns: int) -> bool:
        """Whether a key that is there when its lease should be over may be the next owner's, with the same value.

        Of that, and of a renewal, the events tell, and in their order; they may be behind the answer to a question.
        """
        return heard_ns is None and lease.expires_ns is not None and 0 <= asked_ns - lease.expires_ns < _EVENTS_LATE_NS

    @staticmethod
    def _why_gone(lease: Lease, at_ns: int) -> str:
        """What became of a lease that nobody was seen to let go: before its time it was lost."""
        over = lease.expires_ns is not None and at_ns >= lease.expires_ns - _CLOCK_SLACK_NS
        return "lock-expired" if over else "lock-lost"

    def lost(self, holder: str, at_ns: int) -> None:
        """The server was seen to have the holder's lock no more at at_ns; nothing happens where that is known."""
        lease = self._account.current
        if lease is not None and lease.holder == holder and lease.granted_ns < at_ns:
            self._cancel_timer()
            self._account.gone("redis", "lock-lost", at_ns)

    def follow(self, server: RedisServer) -> None:
        """Asks another server from here on: clients were sent to a new primary."""
        self._server = server

    def _arm(self) -> None:
        self._cancel_timer()
        lease = self._account.current
        if lease is not None and lease.expires_ns is not None:
            delay_s = max(0.0, (lease.expires_ns - now_ns()) / 1e9) + _EXPIRY_SLACK_S
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._check)

    def _check(self) -> None:
        """The lease should have run out now: looking at the key makes the server expire it, and say so."""
        self._timer = None
        self._spawn(self._probe_expiry())

    async def _probe_expiry(self) -> None:
        await self.probe()
        if self._account.current is not None:
            self._arm()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except (RedisError, OSError):
                return  # the server is gone: the fault that took it away notes the loss itself

        def over(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._probing -= 1
            if self._unprobed_ns is not None and not self._probing:
                self._account.wake()  # there is no more to be learned of it

        self._probing += 1  # not in the task: what is heard before it begins has to know
        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(over)

    async def settle(self) -> None:
        """Waits for probes under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def stop(self) -> None:
        self._cancel_timer()
        for task in self._tasks:
            task.cancel()


_GONE_EVENTS = {
    "expired": "lock-expired",
    "evicted": "lock-lost",
    "del": "lock-released",
    "unlink": "lock-released",
    "rename_from": "lock-released",
    "move_from": "lock-released",
}
_RENEWAL_NS = 2_000_000
"""A lease whose end moves by less was not renewed: SET ... PX says "set" and "expire", and PTTL has a resolution."""
_CLOCK_SLACK_NS = 5_000_000
_EVENTS_LATE_NS = 100_000_000
"""For so long an event is waited for that a server's answer has overtaken; a machine that is later has stalled."""
