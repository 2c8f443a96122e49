"""What the faults share that take one of several Redis nodes away: the second, while A asks for its lock or charges.

The first node is the one that the other faults break: redis-restart, say, is one node of several that comes back empty.
"""

from __future__ import annotations

import asyncio

from redis.exceptions import RedisError

from harness.faults._acquire import at_acquire, no_acquire
from harness.faults._at_boundary import AtBoundary
from harness.jobqueue import first_of
from harness.network.tap import Fate, Message
from harness.nodes import Node, QuorumLock, link_of_node
from harness.profile import Profile
from harness.stack import StackError

ACQUIRE_REQUEST = "acquire-request"
PLACES = (ACQUIRE_REQUEST, "charge-request", "charge-reply")
LINK = link_of_node(2)
A_CHARGES_WITHIN_LEASES = 1.0
"""After it has asked for its lock with a node away. A client without a timeout waits for a silent node for ever."""


class RedisNode(AtBoundary):
    """The node goes while A's message is held, and comes back when B is through. A's charge is held as long.

    Where it goes as A asks for its lock, the fault strikes when A has come to its charge, or has failed: a B that came
    at once would only be another one who asks at the same moment, and might as well be the one that gets the lock.
    """

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        if LINK not in profile.links:
            return "it uses no second Redis that could be away (--harness-redis-nodes)"
        return no_acquire(profile) if place == ACQUIRE_REQUEST else super().inapplicable(profile, place)

    async def arm(self) -> None:
        bench = self.bench
        await super().arm()
        self._doubt: str | None = "the second node was not away yet when the fault was lifted"
        self._away = False
        self._coming_to_charge: asyncio.Task[None] | None = None
        if bench.spec.place == ACQUIRE_REQUEST:
            at_acquire(bench, "request", self._strike_once_a_is_known)
            bench.at_boundary[f"{bench.profile.points['charge']}.request"] = bench.hold_until_lifted

    @property
    def node(self) -> Node:
        """The node that goes."""
        return next(node for node in self.bench.nodes if node.link == LINK)

    async def strike(self, message: Message) -> Fate:
        bench, acquiring = self.bench, self.bench.spec.place == ACQUIRE_REQUEST
        if not acquiring:
            bench.strike(boundary=message.boundary)
        try:
            if bench.lock is not None:
                await bench.lock.probe()  # A's lease is on record before a node goes
            await self.take_away(self.node)
            self._away = True
        except (RedisError, OSError, StackError) as error:
            reason = f"the second node could not be taken away: {type(error).__name__}: {error}"
            bench.history.add("queue", "fault", "harness-failed", reason=reason)
        if not acquiring:
            return await bench.hold_until_lifted(message)
        self._coming_to_charge = asyncio.get_running_loop().create_task(self._strike_at_charge(message.boundary))
        return Fate.DELIVER

    async def _strike_at_charge(self, boundary: str) -> None:
        bench = self.bench
        await first_of(
            bench.charge_left.wait(), bench.a.process.wait(), timeout_s=A_CHARGES_WITHIN_LEASES * bench.lease_s
        )
        bench.strike(boundary=boundary)

    async def take_away(self, node: Node) -> None:
        """Raises RedisError, OSError, StackError."""
        raise NotImplementedError

    async def still_away(self, node: Node) -> str | None:
        """What there is to say against the node having been away until now; None when nothing is."""
        raise NotImplementedError

    async def bring_back(self, node: Node) -> None:
        """Raises RedisError, OSError, StackError."""
        raise NotImplementedError

    def evidence(self) -> str:
        """What was seen, in a sentence."""
        raise NotImplementedError

    def lost_there(self, at_ns: int) -> None:
        """The account of the lock: A has it no more on this node."""
        if isinstance(self.bench.lock, QuorumLock):
            self.bench.lock.on(LINK).lost("A", at_ns)

    async def lift(self) -> None:
        if self._away:
            self._doubt = await self.still_away(self.node)
        await super().lift()
        if self._away:
            await self.bring_back(self.node)
            self._away = False

    async def clean_up(self) -> None:
        if self._coming_to_charge is not None:
            self._coming_to_charge.cancel()
        if self._away:
            await self.bring_back(self.node)

    async def witness(self) -> None:
        if self.never_struck():
            return
        if self._doubt is not None:
            self.bench.not_landed(self._doubt)
        else:
            self.bench.landed("kernel", self.evidence())
