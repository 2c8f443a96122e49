"""Attempts: whose turn it is, and what is run again.

An experiment waits for most of its time, so hundreds can wait together. What comes out inconclusive is run again,
alone, a bounded number of times, once everything else is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import traceback
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.crew import Crew
from harness.experiment import Outcome, failed
from harness.faults import FAULTS
from harness.monitor import Gate
from harness.processes import HarnessError
from harness.spec import DOUBLE_CHARGE, INCONCLUSIVE, Spec
from harness.stack.room import Needs, Room
from harness.verdict import NO_FAULT

MOST_ATTEMPTS = 5
FREEZE_EVERY = 20
"""Histories are kept to the end. A full collection over tens of thousands of events stops the harness, and every link
with it, for a quarter of a second: every so often what is there is taken out of the collector's sight."""
FEW = 6
"""How many run side by side when they run again for the first time; after that each runs alone."""


@dataclass(slots=True)
class Entry:
    """One experiment's attempts, and the outcome everybody waits for."""

    spec: Spec
    done: asyncio.Future[Outcome]
    attempts: list[Outcome] = field(default_factory=list)
    overruled: str | None = None
    """Why the outcome counts for nothing after all (the control did not show its hole); never for a double charge."""


class Attempts:
    """Every experiment of a run, from when it is submitted until its outcome stands."""

    def __init__(
        self,
        run: Callable[[Spec], Awaitable[Outcome]],
        room: Room,
        gate: Gate,
        crews: Mapping[str, Crew],
        rank: Callable[[Spec], int],
        hopeless: Callable[[], str | None],
        on_done: Callable[[Entry], None],
    ) -> None:
        self.entries: dict[str, Entry] = {}
        self._run = run
        self._room = room
        self._gate = gate
        self._crews = crews
        self._rank = rank
        self._hopeless = hopeless
        """Why nothing can be tried any more (a server that all share has died); None while it can."""
        self._on_done = on_done
        self._tasks: set[asyncio.Task[None]] = set()
        self._again: deque[Entry] = deque()
        self._retrying = False
        self._finished = 0

    def submit(self, specs: Sequence[Spec], carry_out: Callable[[Entry], Awaitable[None]]) -> None:
        """Has experiments carried out; those already there are left alone."""
        for spec in specs:
            if spec.id not in self.entries:
                self.spawn(self._guarded(self.entry(spec), carry_out))

    def entry(self, spec: Spec) -> Entry:
        """The entry of an experiment, which is made when it is new."""
        return self.entries.setdefault(spec.id, Entry(spec, asyncio.get_running_loop().create_future()))

    @property
    def settled(self) -> bool:
        """Whether every experiment is done."""
        return all(entry.done.done() for entry in self.entries.values())

    @contextlib.asynccontextmanager
    async def turn(self, spec: Spec) -> AsyncIterator[None]:
        """Waits until the stack has what an experiment needs, and the machine has room for it."""
        fault = FAULTS[spec.fault]
        own = 0 if fault.own_redis is None else 1 + fault.replicas
        more = self._crews[spec.subject].subject.redis_nodes - 1
        needs = Needs(fault.proxies(spec.place), servers=own + more, databases=0 if own else 1)
        async with self._room.taken(needs):
            await self._gate.enter(self._rank(spec))
            try:
                yield
            finally:
                self._gate.leave()

    async def attempt(self, entry: Entry) -> None:
        """Runs an experiment in its turn; what showed nothing has another one later."""
        async with self.turn(entry.spec):
            if (why := self._hopeless()) is not None:
                outcome = failed(entry.spec, why)
            else:
                outcome = await self._run(entry.spec)
        if self.worth_repeating(entry, outcome):
            entry.attempts.append(outcome)
            self._again.append(entry)
        else:
            self.finish(entry, outcome)
        self._maybe_retry()

    def worth_repeating(self, entry: Entry, outcome: Outcome) -> bool:
        """What showed nothing is run again. So is a built-in variant that a slow machine charged twice.

        Slow: it stalled, or the fault did not land (a server that was to be back at once came back a lease later). The
        variants' table is a reference, which load must not decide, and a baseline has no fault but the stall; a user's
        double charge under a fault is never run again.
        """
        if len(entry.attempts) + 1 >= MOST_ATTEMPTS or self._hopeless() is not None:
            return False
        if _hung(outcome) and (outcome.spec.fault == NO_FAULT or any(map(_hung, entry.attempts))):
            return False  # a worker that hangs for 30 leases, twice or with nothing wrong, hangs the next time too
        if outcome.verdict.kind == INCONCLUSIVE or outcome.reproduced_by_chance:
            return True
        if outcome.verdict.kind != DOUBLE_CHARGE or outcome.verdict.kind == outcome.spec.expected:
            return False
        stalled = bool(outcome.history.select("stall"))
        if outcome.spec.fault == NO_FAULT:
            return stalled
        return self._crews[outcome.spec.subject].subject.kind == "variant" and (stalled or not outcome.verdict.landed)

    def finish(self, entry: Entry, outcome: Outcome) -> None:
        """The outcome stands."""
        entry.attempts.append(outcome)
        entry.done.set_result(outcome)
        self._finished += 1
        if self._finished % FREEZE_EVERY == 0:
            gc.freeze()
        self._on_done(entry)

    def _maybe_retry(self) -> None:
        """When nothing else is under way, what was inconclusive runs again, alone."""
        if self._again and not self._retrying and self._room.idle:
            self._retrying = True
            self.spawn(self._retry())

    async def _retry(self) -> None:
        try:
            while self._again and self._room.idle:
                once = [entry for entry in self._again if len(entry.attempts) == 1][:FEW]
                batch = once or [self._again[0]]
                for entry in batch:
                    self._again.remove(entry)
                await asyncio.gather(*(self._guarded(entry, self.attempt) for entry in batch))
        finally:
            self._retrying = False
        self._maybe_retry()

    async def _guarded(self, entry: Entry, work: Callable[[Entry], Awaitable[None]]) -> None:
        """A defect of the harness that one experiment meets ends that experiment, not the run, and is never a pass."""
        try:
            await work(entry)
        except Exception as error:  # noqa: BLE001 (whatever it was, it has to be told, and the others go on)
            told = "".join(traceback.format_exception(error))
            self.finish(entry, failed(entry.spec, f"the harness failed: {type(error).__name__}: {error}\n{told}"))

    def spawn(self, work: Any) -> None:
        """Has something done beside everything else; when it fails, everybody who waits is told."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """The engine itself failed: nobody waits for ever."""
        for entry in self.entries.values():
            if not entry.done.done():
                entry.done.set_exception(HarnessError(f"the harness failed: {type(error).__name__}: {error}"))
                entry.done.exception()

    async def stop(self) -> None:
        """Experiments under way are abandoned."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        gc.unfreeze()


def _hung(outcome: Outcome) -> bool:
    """Whether a worker did not end and was killed by the harness, not by a fault."""
    return any("delivery" in killed.detail for killed in outcome.history.select("killed"))
