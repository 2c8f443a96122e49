"""Runs many experiments side by side: one stack, one monitor, a database and two or three processes for each.

An experiment waits for most of its time, so hundreds can wait together. What comes out inconclusive is run again,
alone, a bounded number of times, once everything else is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import itertools
import secrets
import traceback
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import RedisError

from harness import faults
from harness import sweep as sweeps
from harness.baseline import Observer, complaint
from harness.bench import Bench
from harness.crew import Crew, SubjectError, crews_for
from harness.experiment import Experiment, Outcome, failed, not_applicable
from harness.faults import FAULTS
from harness.locks import KeyspaceWatch
from harness.monitor import Gate, Monitor
from harness.processes import HarnessError, Keeper
from harness.profile import Profile
from harness.setup_hook import Setup
from harness.spec import DOUBLE_CHARGE, EXACTLY_ONE, INCONCLUSIVE, Spec
from harness.stack import Stack, StackError
from harness.stack.addresses import ServerUrl
from harness.stack.compose import ComposeStack
from harness.stack.external import ExternalStack
from harness.stack.local import LocalStack
from harness.stack.room import Needs
from harness.subject import Subject
from harness.sweep import BoundaryHoles
from harness.variants import NEED_POSTGRES
from harness.verdict import NO_FAULT

MOST_ATTEMPTS = 5
FREEZE_EVERY = 20
"""Histories are kept to the end. A full collection over tens of thousands of events stops the harness, and every link
with it, for a quarter of a second: every so often what is there is taken out of the collector's sight."""
FEW = 6
"""How many run side by side when they run again for the first time; after that each runs alone."""
MOST_IN_FLIGHT = 400
BASELINE = "baseline"
CONTROL = "naive-ttl"


@dataclass(frozen=True, slots=True)
class Config:
    """What a run is asked to do."""

    subjects: Sequence[Subject]
    ttl_ms: int = 1000
    seed: int = 0
    cwd: str = "."
    stack: str = "local"
    redis: ServerUrl | None = None
    """Somebody's own Redis, in the place of the local stack's."""
    redis_flush: bool = False
    """Whether its databases may be emptied."""
    postgres: ServerUrl | None = None
    setup: Setup | None = None
    controls: Sequence[Subject] = ()
    """Subjects run beside the user's own, to show that the fault does what it should."""


@dataclass(slots=True)
class Entry:
    """One experiment's attempts, and the outcome everybody waits for."""

    spec: Spec
    done: asyncio.Future[Outcome]
    attempts: list[Outcome] = field(default_factory=list)
    overruled: str | None = None
    """Why the outcome counts for nothing after all (the control did not show its hole); never for a double charge."""


class Engine:
    """Owns the keeper, the stack and the experiments of a run. All methods are for its own event loop."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.crews: dict[str, Crew] = {}
        self.profiles: dict[str, Profile] = {}
        self.entries: dict[str, Entry] = {}
        self.on_done: Callable[[Entry], None] | None = None
        self.keeper: Keeper
        self.stack: Stack
        self.monitor: Monitor
        self.gate: Gate
        self._watch: KeyspaceWatch
        self._numbers = itertools.count(1)
        self._name = secrets.token_hex(3)
        """Of this run: a processor that outlives it keeps its ledger, so no customer may come again."""
        self._free: deque[int] = deque()
        self._ready: dict[str, asyncio.Future[str | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._again: deque[Entry] = deque()
        self._retrying = False
        self._finished = 0
        self._sweeps: dict[str, asyncio.Future[tuple[str | None, list[Spec]]]] = {}
        self._rehearsed: dict[str, asyncio.Future[None]] = {}

    async def start(self) -> None:
        """Starts everything. Raises StackError, SubjectError, HarnessError; what was started is then stopped again."""
        faults.load_all()
        self.keeper = await Keeper.launch()
        up = False
        try:
            self.stack = self._new_stack()
            subjects = list({s.name: s for s in [*self.config.subjects, *self.config.controls]}.values())
            crews = asyncio.ensure_future(crews_for(subjects, self.keeper, self.config.cwd))
            try:
                await self.stack.start()
                up = True
            finally:
                self.crews = await crews
            self._free.extend(self.stack.databases)
            self._watch = KeyspaceWatch(self.stack.redis)
            await self._watch.start()
            await self._compare_clocks()
        except BaseException as error:
            if up:
                await self.stack.stop()
            await asyncio.to_thread(self.keeper.shut_down)
            if isinstance(error, RedisError):
                raise StackError(f"Redis does not tell what happens to keys: {error}") from error
            raise
        self.monitor = Monitor(self.stack.server_pids)
        self.monitor.start()
        self.gate = Gate(self.monitor, most=MOST_IN_FLIGHT)

    def _new_stack(self) -> Stack:
        config = self.config
        if config.stack == "compose":
            return ComposeStack(self.keeper)
        if config.redis is not None or config.postgres is not None:
            return ExternalStack(self.keeper, config.redis, config.postgres, flush=config.redis_flush)
        return LocalStack(self.keeper)

    async def _compare_clocks(self) -> None:
        """All witnesses must read one clock. Raises StackError."""
        error_ms = await self.stack.processor.clock_error_ms()
        if error_ms > 0:
            raise StackError(
                f"the processor's clock is {error_ms:.0f} ms off ours: both must run on one machine and one kernel"
            )

    async def stop(self) -> None:
        """Ends everything; experiments under way are abandoned."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        gc.unfreeze()
        await self.monitor.stop()
        await self._watch.stop()
        await self.stack.stop()
        await asyncio.to_thread(self.keeper.shut_down)

    # --- experiments ---

    def submit(self, specs: Sequence[Spec]) -> None:
        """Puts experiments into the run; those already there are left alone."""
        loop = asyncio.get_running_loop()
        for spec in specs:
            if spec.id not in self.entries:
                self.entries[spec.id] = Entry(spec, loop.create_future())
                self._spawn(self._guarded(self.entries[spec.id], self._carry_out))

    async def outcome(self, spec_id: str) -> Outcome:
        """The outcome of an experiment that was submitted. Raises KeyError."""
        return await asyncio.shield(self.entries[spec_id].done)

    async def ready(self, subject: str) -> str | None:
        """Runs a subject's baseline, once; None when it is fit to be tried, else what is wrong with it."""
        if subject not in self._ready:
            self._ready[subject] = asyncio.ensure_future(self._baseline(subject))
        return await asyncio.shield(self._ready[subject])

    async def _guarded(self, entry: Entry, work: Callable[[Entry], Awaitable[None]]) -> None:
        """A defect of the harness that one experiment meets ends that experiment, not the run, and is never a pass."""
        try:
            await work(entry)
        except Exception as error:  # noqa: BLE001 (whatever it was, it has to be told, and the others go on)
            told = "".join(traceback.format_exception(error))
            self._finish(entry, failed(entry.spec, f"the harness failed: {type(error).__name__}: {error}\n{told}"))

    async def _carry_out(self, entry: Entry) -> None:
        spec = entry.spec
        if spec.subject in NEED_POSTGRES and self.stack.postgres is None:
            self._finish(entry, not_applicable(spec, f"the stack has no PostgreSQL: {self.stack.no_postgres}"))
            return
        wrong = await self.ready(spec.subject)
        if wrong is not None:
            self._finish(entry, failed(spec, f"{spec.subject} is not fit to be tried: {wrong}"))
            return
        if (why := self._inapplicable(spec)) is not None:
            self._finish(entry, not_applicable(spec, why))
            return
        await self._attempt(entry)

    def _inapplicable(self, spec: Spec) -> str | None:
        """Why a fault does not concern a subject, or cannot be had on this stack."""
        fault = FAULTS[spec.fault]
        if (why := fault.inapplicable(self.profiles[spec.subject], spec.place)) is not None:
            return why
        if fault.own_redis is not None and self.stack.no_own_redis is not None:
            return self.stack.no_own_redis
        if fault.refuses and self.stack.no_refusals is not None:
            return self.stack.no_refusals
        return self.stack.no_second_postgres if fault.second_postgres else None

    async def _attempt(self, entry: Entry) -> None:
        async with self._turn(entry.spec):
            outcome = await self._run(entry.spec, self.profiles[entry.spec.subject])
        if self._worth_repeating(outcome) and len(entry.attempts) + 1 < MOST_ATTEMPTS:
            entry.attempts.append(outcome)
            self._again.append(entry)
        else:
            self._finish(entry, outcome)
        self._maybe_retry()

    @contextlib.asynccontextmanager
    async def _turn(self, spec: Spec) -> AsyncIterator[None]:
        """Waits until the stack has what an experiment needs, and the machine has room for it."""
        fault = FAULTS[spec.fault]
        own = 0 if fault.own_redis is None else 1 + fault.replicas
        needs = Needs(fault.proxies(spec.place), servers=own, databases=0 if own else 1)
        async with self.stack.room.taken(needs):
            await self.gate.enter()
            try:
                yield
            finally:
                self.gate.leave()

    def _worth_repeating(self, outcome: Outcome) -> bool:
        """What showed nothing is run again. So is a built-in variant that a stalled machine charged twice.

        The variants' table is a reference, which load must not decide, and a baseline has no fault but the stall; a
        user's double charge under a fault is never run again.
        """
        if outcome.verdict.kind == INCONCLUSIVE or outcome.reproduced_by_chance:
            return True
        stalled = bool(outcome.history.select("stall"))
        reference = self.crews[outcome.spec.subject].subject.kind == "variant" or outcome.spec.fault == NO_FAULT
        return stalled and reference and outcome.verdict.kind == DOUBLE_CHARGE != outcome.spec.expected

    def _finish(self, entry: Entry, outcome: Outcome) -> None:
        entry.attempts.append(outcome)
        entry.done.set_result(outcome)
        self._finished += 1
        if self._finished % FREEZE_EVERY == 0:
            gc.freeze()
        if self.on_done is not None:
            self.on_done(entry)

    def _maybe_retry(self) -> None:
        """When nothing else is under way, what was inconclusive runs again, alone."""
        if self._again and not self._retrying and self.stack.room.idle:
            self._retrying = True
            self._spawn(self._retry())

    async def _retry(self) -> None:
        try:
            while self._again and self.stack.room.idle:
                once = [entry for entry in self._again if len(entry.attempts) == 1][:FEW]
                batch = once or [self._again[0]]
                for entry in batch:
                    self._again.remove(entry)
                await asyncio.gather(*(self._guarded(entry, self._attempt) for entry in batch))
        finally:
            self._retrying = False
        self._maybe_retry()

    async def _run(self, spec: Spec, profile: Profile, observers: list[Observer] | None = None) -> Outcome:
        """One run on a bench of its own. A server that cannot be had, or not given back, is an inconclusive verdict."""
        outcome = None
        try:
            async with self._bench(spec, profile) as bench:
                observer = None
                if observers is not None:
                    observer = Observer(bench)
                    observers.append(observer)
                prepare = None if self.crews[spec.subject].subject.kind == "variant" else self.config.setup
                setup = None if prepare is None else functools.partial(prepare, self.keeper)  # not for the control
                outcome = await Experiment(bench, setup, observer).run()
        except (StackError, RedisError, OSError) as error:
            if outcome is None or outcome.verdict.kind != DOUBLE_CHARGE:
                return failed(spec, f"a server of the stack failed: {type(error).__name__}: {error}")
        return outcome

    @contextlib.asynccontextmanager
    async def _bench(self, spec: Spec, profile: Profile) -> AsyncIterator[Bench]:
        """A bench: a database of the shared Redis, or a server of its own where the fault breaks servers."""
        number = next(self._numbers)
        fault = FAULTS[spec.fault]
        if fault.own_redis is not None:
            redis = await self.stack.own_redis(*fault.own_redis)
            watch = KeyspaceWatch(redis)
            await watch.start()
            database = 0
        else:
            redis, watch, database = self.stack.redis, self._watch, self._free.popleft()
            await redis.lend(database)
        bench = Bench(
            spec=spec,
            stack=self.stack,
            crew=self.crews[spec.subject],
            profile=profile,
            redis=redis,
            watch=watch,
            monitor=self.monitor,
            database=database,
            customer=f"cus-{self._name}-{number:05}",
            invoice=f"inv-{self._name}-{number:05}",
        )
        try:
            yield bench
        finally:
            if redis.own:
                await watch.stop()
                await redis.remove()
            else:
                await redis.take_back(database, bench.named, (bench.customer.encode(), bench.invoice.encode()))
                self._free.append(database)

    # --- sweeps ---

    def submit_sweep(self, subject: str, holes: BoundaryHoles, runs: int) -> None:
        """Puts the whole sweep of a subject into the run, once."""
        if subject not in self._sweeps:
            self._sweeps[subject] = asyncio.ensure_future(self._sweep(subject, holes, runs))

    async def sweep(self, subject: str) -> tuple[str | None, list[Entry]]:
        """(what is wrong, or None; every experiment of a sweep, done). The sweep was submitted."""
        wrong, specs = await asyncio.shield(self._sweeps[subject])
        for spec in specs:
            await self.outcome(spec.id)
        return wrong, [self.entries[spec.id] for spec in specs]

    async def _sweep(self, subject: str, holes: BoundaryHoles, runs: int) -> tuple[str | None, list[Spec]]:
        wrong = await self.ready(subject)
        if wrong is not None:
            return f"{subject} is not fit to be tried: {wrong}", []
        await self.rehearse(subject)
        specs = sweeps.specs(self.profiles[subject], self.config.ttl_ms, runs, self.config.seed, holes)
        self.submit(specs)
        return None, specs

    async def rehearse(self, subject: str) -> None:
        """Learns a subject's boundaries, once: until two runs agree, or four times."""
        if subject not in self._rehearsed:
            self._rehearsed[subject] = asyncio.ensure_future(self._rehearse(subject))
        await asyncio.shield(self._rehearsed[subject])

    async def _rehearse(self, subject: str) -> None:
        profile = self.profiles[subject]
        clean: list[list[str]] = [list(profile.boundaries)]
        held: list[list[str]] = []

        async def once(runs: list[list[str]], hold: bool) -> None:
            spec = self._baseline_spec(subject)
            async with self._turn(spec), self._bench(spec, profile) as bench:
                runs.append(await sweeps.rehearse(bench, held=hold))

        await asyncio.gather(once(clean, False), once(held, True), once(held, True))
        for runs, hold in ((clean, False), (held, True)):
            while not sweeps.agree(runs) and len(runs) < sweeps.REHEARSALS:
                await once(runs, hold)
        self.profiles[subject] = sweeps.with_boundaries(profile, clean, held)

    # --- baselines ---

    def _baseline_spec(self, subject: str) -> Spec:
        return Spec(BASELINE, subject, "none", "none", self.config.ttl_ms, seed=self.config.seed)

    async def _baseline(self, subject: str) -> str | None:
        spec = self._baseline_spec(subject)
        entry = self.entries.setdefault(spec.id, Entry(spec, asyncio.get_running_loop().create_future()))
        while True:
            observers: list[Observer] = []
            async with self._turn(spec):
                outcome = await self._run(spec, Profile(subject), observers)
            if not self._worth_repeating(outcome) or len(entry.attempts) + 1 >= MOST_ATTEMPTS:
                break
            entry.attempts.append(outcome)
        self._finish(entry, outcome)
        if not observers:
            self.profiles[subject] = Profile(subject)
            return outcome.verdict.reason
        profile = observers[0].learn(subject)
        self.profiles[subject] = profile
        factor = self.crews[subject].subject.lease_factor
        wrong = complaint(profile, self.config.ttl_ms, factor)
        if wrong is None and outcome.verdict.kind != EXACTLY_ONE:
            wrong = f"without any fault the verdict is {outcome.verdict.kind}: {outcome.verdict.reason}"
        return wrong if wrong is None else wrong + last_words(outcome.workers)

    @property
    def settled(self) -> bool:
        """Whether everything that was submitted is done."""
        learning: list[asyncio.Future[Any]] = [*self._sweeps.values(), *self._ready.values(), *self._rehearsed.values()]
        return all(entry.done.done() for entry in self.entries.values()) and all(task.done() for task in learning)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        self.fail(error)

    def fail(self, error: BaseException) -> None:
        """The engine itself failed: nobody waits for ever."""
        for entry in self.entries.values():
            if not entry.done.done():
                entry.done.set_exception(HarnessError(f"the harness failed: {type(error).__name__}: {error}"))
                entry.done.exception()


def last_words(workers: Sequence[Mapping[str, Any]]) -> str:
    """The last lines of output of every worker that failed, for a message."""
    told = ""
    for worker in workers:
        if worker["exit"] not in (0, 75):
            lines = str(worker["log"]).strip().splitlines()[-12:]
            told += f"\n{worker['name']} ended with status {worker['exit']}; its last output:\n  " + "\n  ".join(lines)
    return told


__all__ = ["Config", "Engine", "Entry", "SubjectError", "last_words"]
