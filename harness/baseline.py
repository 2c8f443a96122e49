"""The baseline: the subject without a fault. It has to charge exactly once, and it teaches the harness the subject.

Learned here: the lock (the expiring Redis key that both workers' commands touch, or the advisory lock in pg_locks), its
lease as the server sees it, the messages that are the read, the charge, the record and the release, and A's boundaries.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from redis.exceptions import RedisError

from harness.bench import Bench
from harness.network.tap import Message
from harness.profile import Profile, generic
from harness.stack.postgres_databases import AdvisoryLock

LEASE_TOLERANCE = 1.1
"""A lease may be this much longer than LOCK_TTL_MS asked for."""


@dataclass(slots=True)
class Candidate:
    """A key that had a time to live while the baseline ran. created: how many messages A had sent by then."""

    key: str
    lease_ms: float
    created_ms: float


@dataclass
class Observer:
    """Watches a baseline: which keys expire, which worker touches which key."""

    bench: Bench
    candidates: dict[str, Candidate] = field(default_factory=dict)
    touched: dict[str, set[str]] = field(default_factory=dict)
    gone_ms: dict[str, list[float]] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    advisory: list[AdvisoryLock] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def watch(self) -> None:
        """Starts to watch; call it when the bench is prepared."""
        self.bench.watch.listen(self.bench.database, self._on_key)
        if self.bench.database_name is not None:
            self.bench.stack.advisory.listen(self.bench.database_name, self.advisory.extend)
        self.bench.on_message.append(self._on_message)

    def _on_key(self, event: str, key: str) -> None:
        if event in ("del", "unlink", "expired"):
            self.gone_ms.setdefault(key, []).append(self.bench.history.t_ms())
            return
        task = asyncio.get_running_loop().create_task(self._probe(key, self.bench.history.t_ms()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _probe(self, key: str, at_ms: float) -> None:
        try:
            (pttl,) = await self.bench.redis.in_database(self.bench.database, ("PTTL", key))
        except (RedisError, OSError):
            return
        known = self.candidates.get(key)
        if isinstance(pttl, int) and pttl > 0:
            if known is None:
                self.candidates[key] = Candidate(key, float(pttl), at_ms)
            else:
                known.lease_ms = max(known.lease_ms, float(pttl))

    def _on_message(self, worker: str, message: Message) -> None:
        if worker == "A":
            self.messages.append(message)
        for arg in message.info.get("args", ()):
            self.touched.setdefault(arg.decode("utf-8", "backslashreplace"), set()).add(worker)

    def learn(self, name: str) -> Profile:
        """What there is to know of the subject now that the baseline is over."""
        bench = self.bench
        shared = [c for key, c in self.candidates.items() if len(self.touched.get(key, ())) > 1]
        lock = min(shared, key=lambda candidate: candidate.created_ms, default=None)
        profile = Profile(
            name,
            links=frozenset(message.link for message in self.messages),
            boundaries=tuple(message.boundary for message in self.messages),
        )
        released_ms: float | None = None
        if lock is not None:
            key = generic(lock.key, bench.customer, bench.invoice)
            profile = replace(profile, lock=key, lock_kind="redis", lease_ms=lock.lease_ms)
            released_ms = min(self.gone_ms.get(lock.key, []), default=None)
            answered = [
                message for message in self.messages if message.boundary.startswith("processor.post-v1-charges.")
            ]
            if released_ms is not None and answered:
                early = released_ms < bench.history.t_ms(answered[-1].at_ns)
                profile = replace(profile, early_release=early)
        elif self.advisory:
            profile = replace(profile, lock=f"advisory lock {self.advisory[0].key}", lock_kind="advisory")
        return replace(profile, points=self._points(lock.key if lock else None, released_ms))

    def _points(self, lock: str | None, released_ms: float | None) -> dict[str, str]:
        """The read is the last message before the charge, the record the first after it that is not the release.

        The release is the last request that names the lock after the charge was answered (or, for a lock in Postgres,
        the last request on that link), because letting go is the last thing a job does with its lock.
        """
        requests = [message for message in self.messages if message.side == "request"]
        charges = [i for i, message in enumerate(requests) if message.label == "post-v1-charges"]
        if not charges:
            return {}
        points = {"charge": _stem(requests[charges[0]])}
        before, after = requests[: charges[0]], requests[charges[0] + 1 :]
        releases = [m for m in after if (_names(m, lock) if lock else m.link == "postgres")]
        if releases and (lock is None or released_ms is not None):
            points["release"] = _stem(releases[-1])
        reads = [
            m
            for m in before
            if (not (lock and _names(m, lock)) and m.link != "processor") or m.info.get("method") == "GET"
        ]
        if reads:
            points["paid-read"] = _stem(reads[-1])
        records = [m for m in after if _stem(m) != points.get("release") and not (lock and _names(m, lock))]
        if records:
            points["record"] = _stem(records[0])
        return points


def _stem(message: Message) -> str:
    return f"{message.link}.{message.label}.{message.n}"


def _names(message: Message, key: str) -> bool:
    return key.encode() in message.info.get("args", ())


def complaint(profile: Profile, ttl_ms: int, lease_factor: float) -> str | None:
    """What keeps this subject from being tried, in a sentence with the remedy; None when all is well."""
    if "charge" not in profile.points:
        return (
            "the baseline saw no request to charge: A never sent POST /v1/charges to PROCESSOR_URL. "
            "Send the charge there (not to an address of your own), and check that the worker did its job at all"
        )
    lease_ms = profile.lease_ms
    if lease_ms is not None and lease_ms > LEASE_TOLERANCE * lease_factor * ttl_ms:
        return (
            f"took a lease of {lease_ms:.0f} ms, asked for {ttl_ms}: honour LOCK_TTL_MS or pass "
            f"--harness-ttl {lease_ms:.0f}"
        )
    return None
