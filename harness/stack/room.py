"""What a stack has only so much of, and who has it: an experiment takes all it needs at once, or waits outside.

Whoever took one thing and then waited for another could wait for somebody who waits for him.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass

from harness.stack import StackError


@dataclass(frozen=True, slots=True)
class Needs:
    """What one experiment takes: listeners of Toxiproxy, Redis servers of its own, databases of the shared Redis."""

    proxies: float = 0
    servers: float = 0
    databases: float = 1


PLENTY = Needs(math.inf, math.inf, math.inf)
_REMEDIES = (
    "listeners of Toxiproxy (docker-compose.yml: TOXIPROXY_PORTS)",
    "Redis servers of its own",
    "empty databases of Redis",
)


class Room:
    """How much there is. Experiments are let in as they come, and past those that need what is not there yet."""

    def __init__(self, there_is: Needs = PLENTY) -> None:
        self._there_is = astuple(there_is)
        self._taken = [0.0] * len(self._there_is)
        self._waiting: deque[tuple[tuple[float, ...], asyncio.Future[None]]] = deque()
        self._holders = 0

    @property
    def idle(self) -> bool:
        """Nobody has anything, and nobody waits."""
        return self._holders == 0 and not self._waiting

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def taken(self, needs: Needs) -> AsyncIterator[None]:
        """Waits until there is all that is needed, and has it. Raises StackError where there never will be."""
        wanted = astuple(needs)
        for want, have, what in zip(wanted, self._there_is, _REMEDIES, strict=True):
            if want > have:
                raise StackError(f"an experiment needs {want:.0f} {what}, and the stack has {have:.0f}")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, turn))
        self._admit()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._holders -= 1
                self._taken = [taken - want for taken, want in zip(self._taken, wanted, strict=True)]
            self._admit()

    def _admit(self) -> None:
        refused: deque[tuple[tuple[float, ...], asyncio.Future[None]]] = deque()
        for wanted, turn in self._waiting:
            if turn.done():
                continue  # it was cancelled while it waited
            total = [taken + want for taken, want in zip(self._taken, wanted, strict=True)]
            if all(there >= needed for there, needed in zip(self._there_is, total, strict=True)):
                self._taken = total
                self._holders += 1
                turn.set_result(None)
            else:
                refused.append((wanted, turn))
        self._waiting = refused
