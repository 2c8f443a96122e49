"""Several Redis servers for one subject (--harness-redis-nodes), and the account of a lock that is held on them.

The first node is the bench's own Redis, on the link redis: whatever breaks a Redis breaks that one. The others are
servers of the experiment's own, on the links redis-2, redis-3, ... Each worker has a tap of its own for each of them.

Who holds a lock that is kept on several nodes, by its servers' account: whoever has it on a majority of them. Each node
gives its account of the key as a single server does; the lock is granted when a majority has the same holder, it runs
out when too few are left that have not run out, and it is gone when there is no such majority any more. Everything that
looks at the lock (how long B is delivered, from when B's messages count as contention) then sees one lock, as before. A
key that was on fewer nodes than a majority in the baseline is judged by those alone: a lock on one node of three, with
data on the others, is that node's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from harness.history import History
from harness.locks import Attribution, KeyspaceWatch, Lease, LockAccount, RedisLock
from harness.stack import Stack
from harness.stack.redis import RedisServer

FIRST = "redis"
"""The link of the first node."""
_NEVER_NS = 1 << 62
_RENEWAL_FRACTION = 0.1
"""Of a lease. The nodes are asked one after the other: an end that moves by less moves within one round of asking."""


def link_of_node(number: int) -> str:
    """redis, redis-2, redis-3, ..."""
    return FIRST if number == 1 else f"{FIRST}-{number}"


def is_redis(link: str) -> bool:
    """Whether a link leads to a Redis: to the one, or to a node of several."""
    return link == FIRST or link.startswith(f"{FIRST}-")


@dataclass(slots=True)
class Node:
    """One more Redis server of an experiment's own."""

    link: str
    redis: RedisServer
    watch: KeyspaceWatch
    database: int = 0


@asynccontextmanager
async def more_nodes(stack: Stack, count: int) -> AsyncIterator[list[Node]]:
    """The nodes besides the first, of count in all. Raises StackError, RedisError, OSError."""
    nodes: list[Node] = []
    async with AsyncExitStack() as given_back:
        for number in range(2, count + 1):
            redis = await stack.own_redis()
            given_back.push_async_callback(redis.remove)
            watch = KeyspaceWatch(redis)
            await watch.start()
            given_back.push_async_callback(watch.stop)
            nodes.append(Node(link_of_node(number), redis, watch))
        yield nodes


@dataclass(slots=True)
class _NodesAccount(LockAccount):
    """What one node says of the key; nobody reads it but the account of all of them."""

    on_change: Callable[[], None] = field(kw_only=True)

    def wake(self) -> None:
        self.on_change()


class QuorumLock:
    """Keeps one account of a key on several nodes: held by whoever has it on a majority. Used as a RedisLock is."""

    def __init__(
        self,
        places: Mapping[str, tuple[RedisServer, int]],
        key: str,
        account: LockAccount,
        attribute: Attribution,
        judged_by: Sequence[str],
    ) -> None:
        """places: by link, the node's server and database. judged_by: the links of the nodes that count."""
        self.key = key
        self._all = account
        self._accounts = {link: _NodesAccount(History(), on_change=self._judge) for link in places}
        self._nodes = {
            link: RedisLock(server, database, key, self._accounts[link], attribute)
            for link, (server, database) in places.items()
        }
        self._judged_by = judged_by
        self._judges = [self._accounts[link] for link in judged_by]
        self._needed = len(judged_by) // 2 + 1

    def on(self, link: str) -> RedisLock:
        """The lock as one node has it."""
        return self._nodes[link]

    # --- as a lock on one server; of what breaks, the first node is meant ---

    def on_event(self, event: str, key: str) -> None:
        self._nodes[FIRST].on_event(event, key)

    async def probe(self) -> None:
        """Asks every node. Raises RedisError, OSError."""
        await asyncio.gather(*(node.probe() for node in self._nodes.values()))

    def lost(self, holder: str, at_ns: int) -> None:
        self._nodes[FIRST].lost(holder, at_ns)

    def follow(self, server: RedisServer) -> None:
        self._nodes[FIRST].follow(server)

    async def settle(self) -> None:
        for node in self._nodes.values():
            await node.settle()

    def stop(self) -> None:
        for node in self._nodes.values():
            node.stop()

    # --- the account of all ---

    def _judge(self) -> None:
        """One node's account has changed: what that means for the lock.

        Nodes answer in any order, so when a holding began may turn out to be earlier than was told. It is not called
        gone while a node is being asked whose a grant is that was seen on it: the answer may come after the lock has
        been let go elsewhere, and tells of before.
        """
        holdings = _held_by_most([account.leases for account in self._judges], self._needed)
        asked = any(self._nodes[link].unsettled for link in self._judged_by)
        current = self._all.current
        if current is not None:
            now = next((h for h in holdings if h.holder == current.holder and h.lasts(current.granted_ns)), None)
            if now is not None and now.gone_ns is None:
                self._renew()
                return
            if asked:
                return
            if now is None:  # a node was seen, later, to have lost the key before the others made a majority with it
                self._all.gone("redis", "lock-lost", current.granted_ns)
            else:
                self._all.gone("redis", now.why_gone or "lock-lost", now.gone_ns or current.granted_ns)
        for holding in holdings:
            told_ns = self._all.leases[-1].gone_ns or 0 if self._all.leases else 0
            if not holding.lasts(told_ns):
                continue
            if asked and holding.gone_ns is not None:
                return
            since_ns = max(holding.since_ns, told_ns)
            self._all.granted("redis", holding.holder, since_ns, self._ends_ns(holding), key=self.key)
            if holding.gone_ns is not None:
                self._all.gone("redis", holding.why_gone or "lock-lost", holding.gone_ns)
        self._renew()

    def _ends_ns(self, holding: _Holding) -> int | None:
        """When too few nodes will have it, if nothing happens; None too where that is over."""
        held = [lease for lease in self._current() if lease.holder == holding.holder]
        if len(held) < self._needed or holding.gone_ns is not None:
            return None
        return _nth_latest_ns([lease.expires_ns for lease in held], self._needed)

    def _renew(self) -> None:
        current = self._all.current
        if current is None:
            return
        held = [lease for lease in self._current() if lease.holder == current.holder]
        expires_ns = _nth_latest_ns([lease.expires_ns for lease in held], self._needed)
        at_ns = max((lease.renewals_ns[-1] for lease in held if lease.renewals_ns), default=None)  # else: one more node
        moved_ns = 0 if expires_ns is None or current.expires_ns is None else expires_ns - current.expires_ns
        if at_ns is not None and expires_ns is not None and moved_ns > _RENEWAL_FRACTION * (expires_ns - at_ns):
            self._all.renewed("redis", round((expires_ns - at_ns) / 1e6, 1), at_ns)
        current.expires_ns = expires_ns

    def _current(self) -> list[Lease]:
        return [lease for account in self._judges if (lease := account.current) is not None]


@dataclass(slots=True)
class _Holding:
    """From when to when somebody had the lock on a majority of the nodes."""

    holder: str
    since_ns: int
    gone_ns: int | None = None
    why_gone: str | None = None

    def lasts(self, at_ns: int) -> bool:
        """Whether it was not over yet at a moment."""
        return self.gone_ns is None or self.gone_ns > at_ns


def _held_by_most(nodes: Sequence[Sequence[Lease]], needed: int) -> list[_Holding]:
    """Who had the lock on at least so many nodes, in order of time, by all that the nodes say by now.

    It went with the node that made them too few, and as it went there.
    """
    steps: list[tuple[int, int, str, str | None]] = []  # gone before granted: the next owner's grant is of that moment
    for lease in (lease for leases in nodes for lease in leases):
        if lease.gone_ns is None or lease.gone_ns > lease.granted_ns:
            steps.append((lease.granted_ns, 1, lease.holder, None))
            if lease.gone_ns is not None:
                steps.append((lease.gone_ns, -1, lease.holder, lease.why_gone))
    on: Counter[str] = Counter()
    found: list[_Holding] = []
    for at_ns, change, holder, why in sorted(steps, key=lambda step: step[:2]):
        on[holder] += change
        if change > 0 and on[holder] == needed:
            found.append(_Holding(holder, at_ns))
        elif change < 0 and on[holder] == needed - 1:
            last = next(holding for holding in reversed(found) if holding.holder == holder)
            last.gone_ns, last.why_gone = at_ns, why
    return found


def _nth_latest_ns(times_ns: Sequence[int | None], nth: int) -> int | None:
    """The n-th latest of some moments; None, where there is none, is later than all."""
    ordered = sorted((_NEVER_NS if at is None else at for at in times_ns), reverse=True)
    return None if ordered[nth - 1] == _NEVER_NS else ordered[nth - 1]


def judges(links: Sequence[str], count: int) -> list[str]:
    """The links of the nodes by which a lock is judged, by those that had it in the baseline, out of count in all."""
    every = [link_of_node(number) for number in range(1, count + 1)]
    return every if len(links) > count // 2 else [link for link in every if link in links]


__all__ = ["FIRST", "Node", "QuorumLock", "is_redis", "judges", "link_of_node", "more_nodes"]
