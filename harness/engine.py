"""The engine of a run: one stack, one monitor, and many experiments side by side on them.

It starts and stops what they share, and answers whoever wants something tried. Whose turn it is stands in attempts.py,
what is learned of a subject beforehand in learning.py, what each experiment has of its own in benches.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redis.exceptions import RedisError

from harness import faults
from harness import sweep as sweeps
from harness.attempts import Attempts, Entry
from harness.benches import Benches
from harness.crew import Crew, crews_for
from harness.experiment import Outcome, failed, not_applicable
from harness.faults import FAULTS
from harness.launcher import Keeper
from harness.learning import Learning
from harness.locks import KeyspaceWatch
from harness.monitor import Gate, Monitor
from harness.profile import Profile
from harness.setup_hook import SetupHook
from harness.spec import Spec
from harness.stack import Stack, StackError
from harness.stack.addresses import ServerUrl
from harness.stack.compose import ComposeStack
from harness.stack.external import ExternalStack
from harness.stack.local import LocalStack
from harness.subject import Subject
from harness.sweep import BoundaryHoles
from harness.variants import NEED_POSTGRES
from harness.verdict import NO_FAULT

MOST_IN_FLIGHT = 400


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
    toxiproxy: str | None = None
    """The local stack's: a program, or the stand-in; None: whichever there is."""
    setup: Subject | None = None
    """What prepares each experiment."""
    controls: Sequence[Subject] = ()
    """Subjects run beside the user's own, to show that the fault does what it should."""


class Engine:
    """Owns the keeper, the stack and the experiments of a run. All methods are for its own event loop.

    But for config and on_done nothing of it is there before start().
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.on_done: Callable[[Entry], None] | None = None
        self.crews: dict[str, Crew] = {}
        self.keeper: Keeper
        self.stack: Stack
        self.monitor: Monitor
        self.gate: Gate
        self.benches: Benches
        self.attempts: Attempts
        self.learning: Learning
        self._watch: KeyspaceWatch
        self._sweeps: dict[str, asyncio.Future[tuple[str | None, list[Spec]]]] = {}

    async def start(self) -> None:
        """Starts everything. Raises StackError, SubjectError, HarnessError; what was started is then stopped again."""
        faults.load_all()
        self.keeper = await Keeper.launch()
        up = False
        try:
            self.stack = self._new_stack()
            wanted = [*self.config.subjects, *self.config.controls, self.config.setup]
            subjects = list({subject.name: subject for subject in wanted if subject is not None}.values())
            crews = asyncio.ensure_future(crews_for(subjects, self.keeper, self.config.cwd))
            try:
                await self.stack.start()
                up = True
            finally:
                self.crews = await crews
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
        setup = SetupHook(self.crews.pop(self.config.setup.name)) if self.config.setup else None
        self.benches = Benches(self.stack, self._watch, self.monitor, self.crews, setup)
        self.attempts = Attempts(
            self._run, self.stack.room, self.gate, self.crews, self._rank, self._hopeless, self._told
        )
        self.learning = Learning(self.attempts, self.benches, self.crews, self.config.ttl_ms, self.config.seed)

    def _new_stack(self) -> Stack:
        config = self.config
        if config.stack == "compose":
            return ComposeStack(self.keeper)
        if config.redis is not None or config.postgres is not None:
            return ExternalStack(
                self.keeper, config.redis, config.postgres, flush=config.redis_flush, toxiproxy=config.toxiproxy
            )
        return LocalStack(self.keeper, config.toxiproxy)

    async def _compare_clocks(self) -> None:
        """All witnesses must read one clock. Raises StackError."""
        error_ms = await self.stack.processor.clock_error_ms()
        if error_ms > 0:
            raise StackError(
                f"the processor's clock is {error_ms:.0f} ms off ours: both must run on one machine and one kernel"
            )

    async def stop(self) -> None:
        """Ends everything; experiments under way are abandoned."""
        for sweep in self._sweeps.values():
            sweep.cancel()
        await asyncio.gather(*self._sweeps.values(), return_exceptions=True)
        await self.attempts.stop()
        await self.learning.stop()
        await self.monitor.stop()
        await self._watch.stop()
        await self.stack.stop()
        await asyncio.to_thread(self.keeper.shut_down)

    # --- experiments ---

    @property
    def entries(self) -> dict[str, Entry]:
        """Every experiment of the run, by its id."""
        return self.attempts.entries

    @property
    def profiles(self) -> dict[str, Profile]:
        """What has been learned of each subject, by its name."""
        return self.learning.profiles

    def submit(self, specs: Sequence[Spec]) -> None:
        """Puts experiments into the run; those already there are left alone."""
        self.attempts.submit(specs, self._carry_out)

    async def outcome(self, spec_id: str) -> Outcome:
        """The outcome of an experiment that was submitted. Raises KeyError."""
        return await asyncio.shield(self.entries[spec_id].done)

    async def ready(self, subject: str) -> str | None:
        """Runs a subject's baseline, once; None when it is fit to be tried, else what is wrong with it."""
        return await self.learning.ready(subject)

    async def rehearse(self, subject: str) -> None:
        """Learns a subject's boundaries, once: until two runs agree, or four times."""
        await self.learning.rehearse(subject)

    @property
    def settled(self) -> bool:
        """Whether everything that was submitted is done."""
        swept = all(task.done() for task in self._sweeps.values())
        return swept and self.attempts.settled and self.learning.settled

    async def _carry_out(self, entry: Entry) -> None:
        spec = entry.spec
        if spec.subject in NEED_POSTGRES and self.stack.postgres is None:
            self.attempts.finish(entry, not_applicable(spec, f"the stack has no PostgreSQL: {self.stack.no_postgres}"))
            return
        if (why := self._no_nodes(spec.subject)) is not None:
            self.attempts.finish(entry, not_applicable(spec, why))
            return
        wrong = await self.ready(spec.subject)
        if wrong is not None:
            self.attempts.finish(entry, failed(spec, f"{spec.subject} is not fit to be tried: {wrong}"))
            return
        if (why := self._inapplicable(spec)) is not None:
            self.attempts.finish(entry, not_applicable(spec, why))
            return
        await self.attempts.attempt(entry)

    def _no_nodes(self, subject: str) -> str | None:
        """Why a subject cannot have the Redis nodes that it asks for; None where it can."""
        nodes = self.crews[subject].subject.redis_nodes
        if nodes == 1 or self.stack.no_own_redis is None:
            return None
        return f"it asks for {nodes} Redis nodes: {self.stack.no_own_redis}"

    def _inapplicable(self, spec: Spec) -> str | None:
        """Why a fault does not concern a subject, or cannot be had on this stack."""
        fault = FAULTS[spec.fault]
        if (why := fault.inapplicable(self.profiles[spec.subject], spec.place)) is not None:
            return why
        if fault.own_redis is not None and self.stack.no_own_redis is not None:
            return self.stack.no_own_redis
        if fault.refuses and self.stack.no_refusals is not None:
            return self.stack.no_refusals
        if fault.stops_redis and self.config.stack == "compose":
            return "Redis runs in a container, whose processes are not stopped"
        return self.stack.no_second_postgres if fault.second_postgres else None

    async def _run(self, spec: Spec) -> Outcome:
        return await self.benches.run(spec, self.profiles[spec.subject])

    def _hopeless(self) -> str | None:
        """Why nothing can be tried any more: a server that all share is gone, and nobody starts it again."""
        return self.stack.died() or self._watch.broken

    def _rank(self, spec: Spec) -> int:
        """Baselines first, since everything waits for them, then what takes longest: nobody waits for it at the end."""
        profile = self.profiles.get(spec.subject)
        if spec.fault == NO_FAULT or profile is None:
            return 0
        return 1 if profile.unlocked else 2

    def _told(self, entry: Entry) -> None:
        if self.on_done is not None:
            self.on_done(entry)

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
