"""The baseline: the subject without a fault. It has to charge exactly once, and it teaches the harness the subject.

Learned here: the lock (the expiring Redis key that both workers' commands touch, or the advisory lock in pg_locks), its
lease as the server sees it, the messages that are the read, the charge, the record and the release, and A's boundaries.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial

from redis.exceptions import RedisError

from harness.bench import Bench
from harness.network.tap import Message
from harness.nodes import FIRST, Node
from harness.points import CHARGE, points
from harness.profile import Profile, generic
from harness.stack.postgres_databases import AdvisoryLock

LEASE_TOLERANCE = 1.1
"""A lease may be this much longer than LOCK_TTL_MS asked for."""


@dataclass(slots=True)
class Candidate:
    """A key that had a time to live while the baseline ran. lease_ms is 0 when it was gone before it could be asked."""

    key: str
    lease_ms: float
    created_ms: float


@dataclass
class Observer:
    """Watches a baseline: which keys expire, on which nodes, which worker touches which key."""

    bench: Bench
    candidates: dict[str, Candidate] = field(default_factory=dict)
    touched: dict[str, set[str]] = field(default_factory=dict)
    on_nodes: dict[str, set[str]] = field(default_factory=dict)
    """key -> the links of the Redis nodes on which it has expired or could have."""
    gone_ms: dict[str, list[float]] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    advisory: list[AdvisoryLock] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def watch(self) -> None:
        """Starts to watch; call it when the bench is prepared."""
        bench = self.bench
        bench.watch.listen(bench.database, partial(self._on_key, Node(FIRST, bench.redis, bench.watch, bench.database)))
        for node in bench.nodes:
            node.watch.listen(node.database, partial(self._on_key, node))
        if self.bench.database_name is not None:
            self.bench.stack.advisory.listen(self.bench.database_name, self.advisory.extend)
        self.bench.on_message.append(self._on_message)

    def _on_key(self, node: Node, event: str, key: str) -> None:
        if event in ("del", "unlink", "expired"):
            self.gone_ms.setdefault(key, []).append(self.bench.history.t_ms())
            return
        if event == "expire":  # also of SET ... PX; a lock around one fast write may be gone before the probe
            self.candidates.setdefault(key, Candidate(key, 0.0, self.bench.history.t_ms()))
            self.on_nodes.setdefault(key, set()).add(node.link)
        task = asyncio.get_running_loop().create_task(self._probe(node, key, self.bench.history.t_ms()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _probe(self, node: Node, key: str, at_ms: float) -> None:
        try:
            (pttl,) = await node.redis.in_database(node.database, ("PTTL", key))
        except (RedisError, OSError):
            return
        known = self.candidates.get(key)
        if isinstance(pttl, int) and pttl > 0:
            self.on_nodes.setdefault(key, set()).add(node.link)
            if known is None:
                self.candidates[key] = Candidate(key, float(pttl), at_ms)
            else:
                known.lease_ms = max(known.lease_ms, float(pttl))

    def _on_message(self, worker: str, message: Message) -> None:
        if worker == "A":
            self.messages.append(message)
        for arg in message.info.get("args", ()):
            self.touched.setdefault(arg.decode("utf-8", "backslashreplace"), set()).add(worker)

    @property
    def scripts_were_new(self) -> bool:
        """Whether Redis did not know a script of A's, so that A sent more than it will send from now on."""
        return any(m.side == "reply" and m.link == FIRST and m.raw.startswith(b"-NOSCRIPT") for m in self.messages)

    def learn(self, name: str) -> Profile:
        """What there is to know of the subject now that the baseline is over."""
        bench = self.bench
        charged_ms = self._charged_ms()
        lock, early = self._lock(charged_ms)
        profile = Profile(
            name,
            links=frozenset(message.link for message in self.messages),
            boundaries=tuple(message.boundary for message in self.messages),
            points=points(
                [message for message in self.messages if message.side == "request"],
                lock.key if lock else None,
                early=early,
            ),
            fenced=any("fencing-token" in m.info.get("headers", ()) for m in self.messages if m.label == CHARGE),
        )
        if lock is not None:
            key = generic(lock.key, bench.customer, bench.invoice)
            return replace(
                profile,
                lock=key,
                lock_kind="redis",
                lease_ms=lock.lease_ms or None,
                early_release=early,
                lock_nodes=tuple(sorted(self.on_nodes.get(lock.key, ()))),
            )
        if self.advisory:
            return replace(profile, lock=f"advisory lock {self.advisory[0].key}", lock_kind="advisory")
        return profile

    def _charged_ms(self) -> float | None:
        """When A's charge was answered."""
        answers = [m for m in self.messages if m.side == "reply" and m.label == CHARGE]
        return self.bench.history.t_ms(answers[-1].at_ns) if answers else None

    def _lock(self, charged_ms: float | None) -> tuple[Candidate | None, bool]:
        """The lock in Redis, and whether it is let go before the charge is answered.

        It is the first expiring key that both workers touch; or one that A alone touched, because B had no need to
        any more, and that A deleted again before it charged.
        """

        def early(candidate: Candidate) -> bool:
            gone_ms = min(self.gone_ms.get(candidate.key, []), default=None)
            return gone_ms is not None and charged_ms is not None and gone_ms < charged_ms

        shared = [c for key, c in self.candidates.items() if len(self.touched.get(key, ())) > 1]
        alone = [c for key, c in self.candidates.items() if self.touched.get(key) == {"A"} and early(c)]
        lock = min(shared or alone, key=lambda candidate: candidate.created_ms, default=None)
        return lock, lock is not None and early(lock)


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
