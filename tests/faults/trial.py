"""Trials of single faults, whatever comes of them; also of faults that nobody but a test knows.

One attempt each, and another one where the machine stood still: what came of that says nothing of the fault.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from harness import faults
from harness.engine import Engine
from harness.experiment import Outcome
from harness.faults import FAULTS, Fault
from harness.report.timeline import text
from harness.spec import INCONCLUSIVE, Spec

MOST_AT_ONCE = 6
MOST_TRIES = 4


class Trial(NamedTuple):
    """What is tried on whom, and where."""

    fault: str
    subject: str
    place: str


@contextlib.contextmanager
def registered(sabotaged: Mapping[str, type[Fault]]) -> Iterator[None]:
    """For a while there are these faults too, each under a name of its own."""
    faults.load_all()
    before = dict(FAULTS)
    for name, fault in sabotaged.items():
        FAULTS[name] = type(fault.__name__, (fault,), {"name": name})
    try:
        yield
    finally:
        FAULTS.clear()
        FAULTS.update(before)


async def side_by_side(engine: Engine, trials: Mapping[str, Trial], ttl_ms: int) -> dict[str, Outcome]:
    """The outcome of each trial. The subjects' baselines have been run."""
    slots = asyncio.Semaphore(MOST_AT_ONCE)

    async def one(trial: Trial) -> Outcome:
        async with slots:
            spec = Spec("test", trial.subject, trial.fault, trial.place, ttl_ms)
            for _ in range(MOST_TRIES):
                outcome = await engine.benches.run(spec, engine.profiles[trial.subject])
                if not outcome.history.select("stall"):
                    break
            return outcome

    done = await asyncio.gather(*map(one, trials.values()))
    return dict(zip(trials, done, strict=True))


def timeline(outcome: Outcome) -> str:
    """What happened, for a failure's message: what came about under load once may not come about again."""
    events = outcome.history.to_json()
    lines = text({"events": events, "ttl_ms": outcome.spec.ttl_ms})  # type: ignore[typeddict-item]
    return f"{outcome.verdict.kind}: {outcome.verdict.reason}\n{lines}"


def assert_found_out(outcome: Outcome, words: str) -> None:
    """A fault that did not do what it should has not landed, and these words say why."""
    said = [str(event.detail["reason"]) for event in outcome.history.select("not-landed")]
    assert any(words in reason for reason in said), said or timeline(outcome)
    assert outcome.verdict.kind == INCONCLUSIVE
    assert not outcome.history.select("landed")
