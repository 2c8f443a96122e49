"""A's message reaches its place when the fault has been lifted: nobody would let A go again, so nothing strikes.

The queue waits 12 leases for a strike. Here the message, or the freezing of A, takes as long as that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest
from trial import Trial, assert_found_out, registered, side_by_side

from harness import processes
from harness.engine import Config, Engine
from harness.experiment import Outcome
from harness.faults import freeze as freezing
from harness.faults.crash import Crash
from harness.faults.freeze import Freeze
from harness.faults.third_worker import ThirdWorker
from harness.network.tap import Fate, Message
from harness.processes import Process
from harness.settings import variant

TTL_MS = 300
ONE_CHARGE = "idempotency-key"
REASON = "only after the fault had been lifted"


class LateMessage(Freeze):
    async def _strike_once_a_is_known(self, message: Message) -> Fate:
        await self.bench.lifted.wait()
        return await super()._strike_once_a_is_known(message)


class LateCrash(Crash):
    async def _strike_once_a_is_known(self, message: Message) -> Fate:
        await self.bench.lifted.wait()
        return await super()._strike_once_a_is_known(message)


class SlowlyFrozen(Freeze):
    """The lift comes while A is being frozen."""

    async def strike(self, message: Message) -> Fate:
        _SLOW.append(self.bench.lifted)
        return await super().strike(message)


class ThirdSlowlyFrozen(ThirdWorker):
    async def strike(self, message: Message) -> Fate:
        _SLOW.append(self.bench.lifted)
        return await super().strike(message)


_SLOW: list[asyncio.Event] = []
_freeze = processes.freeze


async def freeze(process: Process, *, timeout_s: float) -> list[int]:
    """In place of the harness's: for these experiments it takes until the lift."""
    await asyncio.gather(*(lifted.wait() for lifted in _SLOW))
    return await _freeze(process, timeout_s=timeout_s)


LATE = {
    "late-message": LateMessage,
    "late-crash": LateCrash,
    "slowly-frozen": SlowlyFrozen,
    "third-slowly-frozen": ThirdSlowlyFrozen,
}


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Mapping[str, Outcome]]:
    with pytest.MonkeyPatch.context() as patch, registered(LATE), asyncio.Runner() as runner:
        patch.setattr(freezing, "freeze", freeze)
        yield runner.run(_run())


async def _run() -> Mapping[str, Outcome]:
    engine = Engine(Config([variant(ONE_CHARGE)], ttl_ms=TTL_MS))
    await engine.start()
    try:
        await engine.ready(ONE_CHARGE)
        return await side_by_side(engine, {name: Trial(name, ONE_CHARGE, "charge-request") for name in LATE}, TTL_MS)
    finally:
        await engine.stop()


@pytest.mark.parametrize("name", LATE)
def test_a_strike_that_would_come_after_the_lift_does_not_come(name: str, outcomes: Mapping[str, Outcome]) -> None:
    outcome = outcomes[name]
    assert_found_out(outcome, REASON)
    assert not outcome.history.select("killed"), "A was left frozen, or killed"
    assert [worker["exit"] for worker in outcome.workers if worker["name"] == "A"] == [0]
    assert outcome.verdict.charges == 1
