"""Makes the bench of each experiment, runs the experiment on it, and gives back what was lent."""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections import deque
from collections.abc import AsyncIterator, Mapping

from redis.exceptions import RedisError

from harness.baseline import Observer
from harness.bench import Bench
from harness.crew import Crew
from harness.experiment import Experiment, Outcome, Prepare, failed
from harness.faults import FAULTS
from harness.locks import KeyspaceWatch
from harness.monitor import Monitor
from harness.nodes import Node, more_nodes
from harness.profile import Profile
from harness.setup_hook import SetupHook
from harness.spec import DOUBLE_CHARGE, Spec
from harness.stack import Stack, StackError


class Benches:
    """What the benches of a run have in common: the stack, the watches on it, and the databases that are free."""

    def __init__(
        self,
        stack: Stack,
        watch: KeyspaceWatch,
        monitor: Monitor,
        crews: Mapping[str, Crew],
        setup: SetupHook | None,
    ) -> None:
        self._stack = stack
        self._watch = watch
        self._monitor = monitor
        self._crews = crews
        self._setup = setup
        self._numbers = itertools.count(1)
        self._name = secrets.token_hex(3)
        """Of this run: a processor that outlives it keeps its ledger, so no customer may come again."""
        self._free = deque(stack.databases)

    def setup_of(self, subject: str) -> Prepare | None:
        """What is to be done before each run of a subject: --harness-setup, which is not for the control."""
        if self._setup is None or self._crews[subject].subject.kind == "variant":
            return None
        return self._setup

    async def run(self, spec: Spec, profile: Profile, observers: list[Observer] | None = None) -> Outcome:
        """One run on a bench of its own. A server that cannot be had, or not given back, is an inconclusive verdict."""
        outcome = None
        try:
            async with self.bench(spec, profile) as bench:
                observer = None
                if observers is not None:
                    observer = Observer(bench)
                    observers.append(observer)
                outcome = await Experiment(bench, self.setup_of(spec.subject), observer).run()
        except (StackError, RedisError, OSError) as error:
            if outcome is None or outcome.verdict.kind != DOUBLE_CHARGE:
                why = self._stack.died() or f"{type(error).__name__}: {error}"
                return failed(spec, f"a server of the stack failed: {why}")
        return outcome

    @contextlib.asynccontextmanager
    async def bench(self, spec: Spec, profile: Profile) -> AsyncIterator[Bench]:
        """A bench: a database of the shared Redis, or a server of its own where the fault breaks servers."""
        subject = self._crews[spec.subject].subject
        async with more_nodes(self._stack, subject.redis_nodes) as nodes, self._bench_on(spec, profile, nodes) as bench:
            yield bench

    @contextlib.asynccontextmanager
    async def _bench_on(self, spec: Spec, profile: Profile, nodes: list[Node]) -> AsyncIterator[Bench]:
        number = next(self._numbers)
        fault = FAULTS[spec.fault]
        if fault.own_redis is not None:
            redis = await self._stack.own_redis(*fault.own_redis)
            watch = KeyspaceWatch(redis)
            await watch.start()
            database = 0
        else:
            redis, watch, database = self._stack.redis, self._watch, self._free.popleft()
            await redis.lend(database)
        bench = Bench(
            spec=spec,
            stack=self._stack,
            crew=self._crews[spec.subject],
            profile=profile,
            redis=redis,
            watch=watch,
            monitor=self._monitor,
            database=database,
            customer=f"cus-{self._name}-{number:05}",
            invoice=f"inv-{self._name}-{number:05}",
            nodes=nodes,
        )
        try:
            yield bench
        finally:
            if redis.own:
                await watch.stop()
                await redis.remove()
            else:
                await redis.take_back(database, bench.senders.named, (bench.customer.encode(), bench.invoice.encode()))
                self._free.append(database)
