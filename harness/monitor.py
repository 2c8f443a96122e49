"""The watch on the machine: load must not decide a verdict, so it is measured, kept low, and told.

Three measures: how late the harness's own timers fire, how many threads want a CPU (/proc/loadavg), and how long the
servers waited for one (/proc/PID/schedstat), or stood stopped. Workers' own waits are read from their first message to
their end (harness/worker.py).
"""

from __future__ import annotations

import asyncio
import heapq
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness import kernel
from harness.history import now_ns

_TICK_S = 0.01
_SERVERS_EVERY = 5
_KEPT_MS = 20.0
"""Shorter stalls are nobody's business: no lease is that short."""
_CALM_MS = 6.0
_BUSY_MS = 15.0
_APART_S = 0.004
_FULL_PER_CPU = 2.5
"""More threads than this wanting each CPU keep it no busier: then experiments are let in slowly."""
_SLOWLY_S = 0.08
_CROWDED_PER_CPU = 4
"""More than this, and a worker waits longer for a CPU than its work takes: then none are. Others' threads count too, so
beside a few busy loops the first is always so, and this need not be."""
_LEAST_IN_FLIGHT = 2


@dataclass(frozen=True, slots=True)
class Stall:
    at_ns: int
    ms: float
    of: str


class Monitor:
    """Measures all the time; tells experiments what happened, and the gate how much more the machine can take."""

    def __init__(self, servers: Callable[[], Mapping[str, int]]) -> None:
        self._servers = servers
        self._stalls: deque[Stall] = deque(maxlen=10_000)
        self._delays: dict[int, int] = {}
        self._stopped_ns: dict[int, int] = {}
        """Since when a server is seen stopped: a paused container, a SIGSTOP of somebody's."""
        self._task: asyncio.Task[None] | None = None
        self.lateness_ms = 0.0
        """How late timers fire, averaged over about a tenth of a second."""
        self.runnable = 0.0
        """How many threads of the whole machine want a CPU now, averaged likewise."""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        ticks = 0
        while True:
            before = now_ns()
            await asyncio.sleep(_TICK_S)
            late_ms = (now_ns() - before) / 1e6 - _TICK_S * 1e3
            self.lateness_ms += (max(0.0, late_ms) - self.lateness_ms) / 10
            if late_ms > _KEPT_MS:
                self._stalls.append(Stall(now_ns(), late_ms, "the harness"))
            self.runnable += (kernel.runnable() - self.runnable) / 10
            ticks += 1
            if ticks % _SERVERS_EVERY == 0:
                self._look_at_servers()

    def _look_at_servers(self) -> None:
        for name, pid in self._servers().items():
            delay = kernel.run_delay_ns(pid)
            if delay is None:
                continue
            waited_ms = (delay - self._delays.get(pid, delay)) / 1e6
            self._delays[pid] = delay
            if kernel.is_stopped(pid):
                self._stopped_ns.setdefault(pid, now_ns())
            elif (since_ns := self._stopped_ns.pop(pid, None)) is not None:
                waited_ms += (now_ns() - since_ns) / 1e6
            if waited_ms > _KEPT_MS:
                self._stalls.append(Stall(now_ns(), waited_ms, name))

    def since(self, at_ns: int, threshold_ms: float) -> list[Stall]:
        """The stalls of more than threshold_ms since a moment on the one clock."""
        return [stall for stall in self._stalls if stall.at_ns >= at_ns and stall.ms > threshold_ms]


class Gate:
    """Admits experiments: more while the machine is calm, fewer when its timers fire late.

    Those of a lower rank first, whenever they came: what others wait for, and what takes longest.
    """

    def __init__(self, monitor: Monitor, *, most: int, start: int | None = None) -> None:
        self._monitor = monitor
        self._most = most
        self.limit = float(start or min(most, 32 * (os.cpu_count() or 1)))
        self.in_flight = 0
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        self._came = 0
        self._adapted_ns = now_ns()
        self._admitted_ns = 0
        self._pump: asyncio.Task[None] | None = None
        self._pinned: int | None = None

    def pin(self, limit: int | None) -> None:
        """Fixes the number in flight (for measurements); None lets it adapt again."""
        self._pinned = limit

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def enter(self, rank: int = 0) -> None:
        """Returns when one more experiment may begin."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._came += 1
        heapq.heappush(self._queue, (rank, self._came, turn))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.get_running_loop().create_task(self._admit())
        await turn

    def leave(self) -> None:
        self.in_flight -= 1

    async def _admit(self) -> None:
        """Lets them in one by one, a few milliseconds apart, so that they do not clump."""
        while self._queue:
            self._adapt()
            if self._has_room():
                _, _, turn = heapq.heappop(self._queue)
                if not turn.done():
                    self.in_flight += 1
                    self._admitted_ns = now_ns()
                    turn.set_result(None)
            await asyncio.sleep(_APART_S)

    def _has_room(self) -> bool:
        if self._pinned is not None:
            return self.in_flight < self._pinned
        if self.in_flight < _LEAST_IN_FLIGHT:
            return True
        wanting = self._monitor.runnable / (os.cpu_count() or 1)
        just_now = now_ns() - self._admitted_ns < _SLOWLY_S * 1e9
        crowded = wanting > _CROWDED_PER_CPU or (wanting > _FULL_PER_CPU and just_now)
        return self.in_flight < int(self.limit) and self._monitor.lateness_ms <= _BUSY_MS and not crowded

    def _adapt(self) -> None:
        if now_ns() - self._adapted_ns < 100_000_000:
            return
        self._adapted_ns = now_ns()
        if self._monitor.lateness_ms > _BUSY_MS:
            self.limit = max(2.0, self.limit * 0.8)
        elif self._monitor.lateness_ms < _CALM_MS and self._queue:
            self.limit = min(float(self._most), self.limit + 4)
