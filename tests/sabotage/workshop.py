"""One engine for many sabotaged experiments, side by side: what is broken is broken on one bench, or on one engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from harness.bench import Bench
from harness.engine import Config, Engine
from harness.experiment import Experiment, Outcome
from harness.settings import variant
from harness.spec import Spec
from harness.stack.local import LocalStack
from harness.subject import Subject

TTL_MS = 600
SUBJECT = "idempotency-key"
"""A sound variant: whatever is not green here is so because of the sabotage."""
STALLED = "the machine stood still"
MOST_TRIES = 6


@dataclass(frozen=True)
class Sabotage:
    """What is broken on the bench of one experiment, and which words have to name the cause."""

    fault: str
    place: str
    breaks: Callable[[Bench], Awaitable[None] | None] = lambda _: None
    subject: str = SUBJECT


async def engine(*own: Subject, cwd: str = ".", patch: Callable[[Engine], None] | None = None) -> Engine:
    """An engine that runs, its subjects' baselines done; without PostgreSQL, which none of them needs."""
    made = Engine(Config([variant(SUBJECT), *own], ttl_ms=TTL_MS, cwd=cwd))
    await made.start()
    if patch is not None:
        patch(made)
    for name in made.crews:
        wrong = await made.ready(name)
        assert wrong is None or STALLED in wrong, wrong
    return made


async def no_postgres(stack: LocalStack) -> None:
    """In place of LocalStack._start_postgres."""
    stack.no_postgres = "not wanted here"


async def attempt(made: Engine, sabotage: Sabotage) -> Outcome:
    """One sabotaged experiment; again where load, and not the sabotage, decided."""
    spec = Spec("sabotage", sabotage.subject, sabotage.fault, sabotage.place, TTL_MS)
    for _ in range(MOST_TRIES):
        async with made.benches.bench(spec, made.profiles[sabotage.subject]) as bench:
            broken = sabotage.breaks(bench)
            if broken is not None:
                await broken
            outcome = await Experiment(bench).run()
        if STALLED not in outcome.verdict.reason:
            break
    return outcome


class Instead:
    """Another object with some attributes replaced."""

    def __init__(self, original: Any, **replaced: Any) -> None:
        self._original = original
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


async def soon(condition: Callable[[], bool]) -> None:
    """Polls for a condition; whoever awaits it has a deadline of their own."""
    while not condition():
        await asyncio.sleep(0.002)
