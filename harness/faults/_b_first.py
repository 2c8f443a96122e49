"""Of two who ask Redis for a lost lock, B is first: what A sends meanwhile waits until B has been answered.

Which of A's next renewal and B's next request comes first is chance, and the schedule that breaks a lock is the one to
try: a renewal that quietly takes a lost lock again is caught only by a B who was there before it.
"""

from __future__ import annotations

import asyncio

from harness.bench import Bench
from harness.jobqueue import first_of
from harness.network.tap import Fate, Handler, Message

WAIT_LEASES = 1.0
"""How long A's requests wait at most, from when the lock was lost."""


class BFirst:
    """Holds A's requests to Redis from when it is made."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._over = asyncio.Event()
        self._asked: set[str] = set()
        self._key = b"" if bench.lock is None else bench.lock.key.encode()
        self._link = bench.link("A", "redis")
        self._before = self._link.interceptor
        self._link.interceptor = lambda message: self._wait if message.side == "request" else self._theirs(message)

    def until_b_was_answered(self) -> None:
        """From here on B's first answer about the lock ends it, the fault's lift, or a lease."""
        self._bench.on_message.append(self._note)
        asyncio.get_running_loop().call_later(WAIT_LEASES * self._bench.lease_s, self.end)

    def end(self) -> None:
        """What waits is delivered, and nothing waits any more."""
        if not self._over.is_set():
            self._over.set()
            self._link.interceptor = self._before

    def _note(self, worker: str, message: Message) -> None:
        if worker != "B" or message.link != "redis" or self._over.is_set():
            return
        exchange = message.boundary.rpartition(".")[0]
        if message.side == "request" and self._key and self._key in message.raw:
            self._asked.add(exchange)
        elif message.side == "reply" and exchange in self._asked:
            self.end()

    async def _wait(self, message: Message) -> Fate:
        self._bench.history.add("tap", "A", "held", boundary=message.boundary)
        await first_of(self._over.wait(), self._bench.lifted.wait(), timeout_s=2 * WAIT_LEASES * self._bench.lease_s)
        self._bench.history.add("tap", "A", "let-go", boundary=message.boundary)
        later = self._theirs(message)
        return Fate.DELIVER if later is None else await later(message)

    def _theirs(self, message: Message) -> Handler | None:
        """What would have become of a message without this."""
        return None if self._before is None else self._before(message)
