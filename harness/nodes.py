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
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from harness.history import History, now_ns
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
        """One node's account has changed: what that means for the lock."""
        held, holder = self._held_by_most()
        current = self._all.current
        if current is not None and current.holder != holder:
            self._gone(current)
            current = None
        if holder is None:
            return
        expires_ns = _nth_ns([lease.expires_ns for lease in held], self._needed, latest_first=True)
        if current is None:
            granted_ns = _nth_ns([lease.granted_ns for lease in held], self._needed, latest_first=False) or now_ns()
            self._all.granted("redis", holder, granted_ns, expires_ns, key=self.key)
            return
        at_ns = max((lease.renewals_ns[-1] for lease in held if lease.renewals_ns), default=None)  # else: one more node
        moved_ns = 0 if expires_ns is None or current.expires_ns is None else expires_ns - current.expires_ns
        if at_ns is not None and expires_ns is not None and moved_ns > _RENEWAL_FRACTION * (expires_ns - at_ns):
            self._all.renewed("redis", round((expires_ns - at_ns) / 1e6, 1), at_ns)
        current.expires_ns = expires_ns

    def _held_by_most(self) -> tuple[list[Lease], str | None]:
        leases = [lease for account in self._judges if (lease := account.current) is not None]
        for holder in dict.fromkeys(lease.holder for lease in leases):
            held = [lease for lease in leases if lease.holder == holder]
            if len(held) >= self._needed:
                return held, holder
        return [], None

    def _gone(self, current: Lease) -> None:
        """Too few nodes have it: it went with the last one that went, and as it went there."""
        last = [lease for account in self._judges if (lease := account.last_of(current.holder)) and lease.gone_ns]
        went = max(last, key=lambda lease: lease.gone_ns or 0)
        self._all.gone("redis", went.why_gone or "lock-lost", max(went.gone_ns or 0, current.granted_ns))


def _nth_ns(times_ns: Sequence[int | None], nth: int, *, latest_first: bool) -> int | None:
    """The n-th of some moments; None, where there is none, is later than all."""
    ordered = sorted((_NEVER_NS if at is None else at for at in times_ns), reverse=latest_first)
    return None if ordered[nth - 1] == _NEVER_NS else ordered[nth - 1]


def judges(links: Sequence[str], count: int) -> list[str]:
    """The links of the nodes by which a lock is judged, by those that had it in the baseline, out of count in all."""
    every = [link_of_node(number) for number in range(1, count + 1)]
    return every if len(links) > count // 2 else [link for link in every if link in links]


__all__ = ["FIRST", "Node", "QuorumLock", "is_redis", "judges", "link_of_node", "more_nodes"]
