"""What the faults share that make Redis lose what A wrote there, while A's charge or the reply to it is held.

Redis itself is the witness: it is asked what it has right before and right after, with nobody else asking meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from redis.exceptions import RedisError
from tenacity import AsyncRetrying, retry_if_result, stop_after_delay, wait_fixed

from harness.bench import Bench
from harness.faults._at_boundary import AtBoundary
from harness.faults._b_first import BFirst
from harness.history import now_ns
from harness.network.tap import Fate, Message
from harness.profile import Profile
from harness.stack import StackError
from harness.stack.redis import Breakable, RedisServer

T = TypeVar("T")
_POLL_S = 0.01
_WAKE_AFTER_LEASES = (0.05, 0.1, 0.2)
_SHOWN = 3
"""How many keys are named in a sentence."""

OWN_KEYS = "lockproof:"
"""How the keys begin that the faults write themselves."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What a database held at one moment, by its server's account. left_ms: what was left of keys that expire."""

    at_ns: int
    values: Mapping[str, bytes]
    left_ms: Mapping[str, int]


async def look(server: RedisServer, database: int) -> Keys:
    """Asks a server what it has. Raises RedisError, OSError."""
    (found,) = await server.in_database(database, ("KEYS", "*"))
    if isinstance(found, Exception):
        raise found
    names = [name for name in found if not name.startswith(OWN_KEYS.encode())]
    # GET where it is a string, for people and for counters; DUMP for whatever it is
    questions = [(word, name) for name in names for word in ("GET", "DUMP", "PTTL")]
    answers = await server.in_database(database, *questions) if names else []
    values, left_ms = {}, {}
    for index, name in enumerate(names):
        value, dump, left = answers[3 * index : 3 * index + 3]
        text = name.decode("utf-8", "backslashreplace")
        if isinstance(dump, bytes):  # else it went in between
            values[text] = value if isinstance(value, bytes) else dump
            if isinstance(left, int) and left >= 0:
                left_ms[text] = left
    return Keys(now_ns(), values, left_ms)


def told(keys: Keys, names: list[str]) -> str:
    """Some keys in words, those that expire first, with what was left of them."""
    first = sorted(names, key=lambda name: (name not in keys.left_ms, name))
    shown = [f"{name} ({keys.left_ms[name]} ms left)" if name in keys.left_ms else name for name in first[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


@asynccontextmanager
async def undisturbed(bench: Bench) -> AsyncIterator[None]:
    """While Redis is broken and looked at, B's requests wait at B's tap, for some milliseconds."""
    calm = asyncio.Event()

    async def wait(_: Message) -> Fate:
        await calm.wait()
        return Fate.DELIVER

    link = bench.link("B", "redis")
    before = link.interceptor
    link.interceptor = lambda message: wait if message.side == "request" else None
    try:
        yield
    finally:
        link.interceptor = before
        calm.set()


def breakable(server: RedisServer) -> Breakable:
    """The experiment's own server as one that can be killed. Raises StackError where the stack has none."""
    if not isinstance(server, Breakable):
        raise StackError(f"the stack's Redis at {server.host}:{server.port} cannot be killed and started again")
    return server


def sends_later(profile: Profile, link: str, boundary: str) -> bool:
    """Whether A sends anything on a link after a boundary, as the baseline saw it."""
    if boundary not in profile.boundaries:
        return True  # not of the clean run (a renewal): then it cannot be told
    later = profile.boundaries[profile.boundaries.index(boundary) + 1 :]
    return any(name.startswith(f"{link}.") and name.endswith(".request") for name in later)


async def until(ask: Callable[[], Awaitable[T]], good: Callable[[T], bool], *, within_s: float) -> T:
    """Asks again and again until the answer is good or time is over; returns the last answer."""

    async def asked() -> T:
        return await ask()

    polling = AsyncRetrying(
        retry=retry_if_result(lambda answer: not good(answer)),
        wait=wait_fixed(_POLL_S),
        stop=stop_after_delay(within_s),
        retry_error_callback=lambda state: None if state.outcome is None else state.outcome.result(),
    )
    answer: T = await polling(asked)
    return answer


class RedisLoss(AtBoundary):
    """Strikes with A's message held, which is let go when B is through."""

    own_redis: ClassVar[tuple[str, ...] | None] = ()
    cuts_connections: ClassVar[bool] = True
    """Whether the connections to the server end with it."""

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        if "redis" not in profile.links:
            return "it uses no Redis"
        if profile.lock_kind == "advisory":
            return "its lock is an advisory lock of PostgreSQL, not a key in Redis"
        if profile.early_release and not sends_later(profile, "redis", f"{profile.points.get('charge')}.request"):
            return "it holds no lock while it charges, and keeps nothing else in Redis"
        return super().inapplicable(profile, place)

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.before: Keys | None = None
        self.after: Keys | None = None
        self.runs = ("", "")
        """The server's run_id before and after it was started again."""
        self._unnoted = False

    async def strike(self, message: Message) -> Fate:
        bench = self.bench
        bench.strike(boundary=message.boundary)
        b_first = BFirst(bench)
        try:
            async with undisturbed(bench):
                if bench.lock is not None:
                    await bench.lock.probe()  # A's lease is on record before its server is broken
                self.before = await look(bench.redis, bench.database)
                await self.break_redis()
                self.after = await look(bench.redis, bench.database)
                self._note_loss()
                lost = self.lock_key is not None and self.lock_key in self.gone()
                b_first.until_b_was_answered() if lost else b_first.end()
        except (RedisError, OSError, StackError) as error:
            b_first.end()
            reason = f"Redis could not be broken as planned: {type(error).__name__}: {error}"
            bench.history.add("queue", "fault", "harness-failed", reason=reason)
        return await self.hold(message)

    async def break_redis(self) -> None:
        """Makes the server lose what it should. Raises RedisError, OSError, StackError."""
        raise NotImplementedError

    async def hold(self, message: Message) -> Fate:
        return await self.bench.hold_until_lifted(message)

    async def restart(self, while_down: Callable[[], None] | None = None) -> None:
        """kill -9 and start again: to the server's account another run. Raises StackError, RedisError, OSError."""
        server = self.bench.redis
        before = (await server.info("server"))["run_id"]
        await breakable(server).restart(while_down=while_down)
        self.runs = before, (await server.info("server"))["run_id"]
        await self.bench.watch.follow(server)  # a new process knows nothing of keyspace events that were asked for

    def not_restarted(self) -> str | None:
        """Why the server was not started again; None when it was."""
        before, after = self.runs
        return f"Redis was not started again: it is still run {after}" if before == after else None

    # --- the account of the lock ---

    def _note_loss(self) -> None:
        """The lock's account says so: at once, or once B is back.

        A B whose connection ended with the server fails; that was no attempt at the lost lock. So the loss is
        accounted for when a B asks again, and the queue delivers B until then.
        """
        if self.cuts_connections:
            self._unnoted = True
            self.wake_the_queue()
            self.bench.on_message.append(self._when_b_asks)
        else:
            self._lock_lost()

    def wake_the_queue(self) -> None:
        """A B that has failed with its connection is delivered again soon, not half a lease later."""
        loop, lease_s = asyncio.get_running_loop(), self.bench.lease_s
        for leases in _WAKE_AFTER_LEASES:
            loop.call_later(leases * lease_s, self.bench.account.wake)

    def _when_b_asks(self, worker: str, message: Message) -> None:
        if worker == "B" and message.link == "redis" and message.side == "request":
            self._lock_lost()

    def _lock_lost(self) -> None:
        self._unnoted = False
        lock, after = self.bench.lock, self.after
        if lock is not None and after is not None and lock.key in self.gone():
            lock.lost("A", after.at_ns)

    async def lift(self) -> None:
        if self._unnoted:
            self._lock_lost()
        await super().lift()

    # --- the witness ---

    def gone(self) -> list[str]:
        """The keys that the server had before and has no more, or with another value."""
        if self.before is None or self.after is None:
            return []
        after = self.after.values
        return sorted(key for key, value in self.before.values.items() if after.get(key) != value)

    @property
    def took_ms(self) -> float:
        """How long it took to break Redis, by the harness's clock."""
        assert self.before is not None
        assert self.after is not None
        return (self.after.at_ns - self.before.at_ns) / 1e6

    @property
    def lock_key(self) -> str | None:
        """The lock that A holds while it charges; None where it holds none then."""
        lock = self.bench.lock
        return None if lock is None or self.bench.profile.early_release else lock.key

    async def witness(self) -> None:
        if self.never_struck() or self.before is None or self.after is None:
            return  # what went wrong is in the history
        if (doubt := self.doubt()) is not None:
            self.bench.not_landed(doubt)
        else:
            self.bench.landed("redis", self.evidence())

    def doubt(self) -> str | None:
        """Why the loss has not been shown; None when it has."""
        assert self.before is not None
        if not self.before.values:
            return "Redis held nothing of this subject's when the fault struck"
        if self.lock_key is not None and self.lock_key not in self.before.values:
            return f"Redis did not have A's lock {self.lock_key} any more when the fault struck"
        if self.lock_key is not None and self.lock_key not in self.gone():
            return f"Redis still had A's lock {self.lock_key} after the fault had struck"
        if (left_ms := self.before.left_ms.get(self.lock_key or "")) is not None and self.took_ms >= left_ms:
            return f"it took {self.took_ms:.0f} ms: A's lock, with {left_ms} ms left, would have run out by itself"
        if not self.gone():
            return f"Redis still had all of {', '.join(self.before.values)} after the fault had struck"
        return None

    def evidence(self) -> str:
        """What the server said, in a sentence."""
        assert self.before is not None
        return f"Redis had {told(self.before, self.gone())} before and not after"
