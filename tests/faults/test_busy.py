"""A worker that is kept busy is late by one stop and never by two, whatever the machine and Redis do meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest
from trial import Trial, registered, side_by_side, timeline

from harness.engine import Config, Engine
from harness.experiment import Outcome
from harness.faults.busy import MOST_STOPPED_LEASES, RUNNING_LEASES, Busy
from harness.network.tap import Fate, Handler, Message
from harness.settings import variant
from harness.spec import EXACTLY_ONE, INCONCLUSIVE

TTL_MS = 1000
ANSWER_LEASES = 1.5 * RUNNING_LEASES
"""Longer than A runs at once: each answer would come while it is stopped."""


class SlowRedis(Busy):
    """And what Redis answers takes longer than A runs at once."""

    async def strike(self, message: Message) -> Fate:
        link = self.bench.link("A", "redis")
        others = link.interceptor

        async def late(reply: Message) -> Fate:
            await asyncio.sleep(ANSWER_LEASES * self.bench.lease_s)
            return Fate.DELIVER

        def handler(message: Message) -> Handler | None:
            return late if message.side == "reply" else others(message) if others else None

        link.interceptor = handler
        return await super().strike(message)


class StarvedAfterwards(Busy):
    """A waits for a CPU whenever it may run."""

    async def witness(self) -> None:
        self._stops_ms = [stop_ms + MOST_STOPPED_LEASES * TTL_MS for stop_ms in self._stops_ms]
        await super().witness()


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Mapping[str, Outcome]]:
    with registered({"slow-redis": SlowRedis, "starved": StarvedAfterwards}), asyncio.Runner() as runner:
        yield runner.run(_run())


async def _run() -> Mapping[str, Outcome]:
    engine = Engine(Config([variant("watchdog"), variant("naive-ttl")], ttl_ms=TTL_MS))
    await engine.start()
    try:
        wanted = {
            "slow-redis": Trial("slow-redis", "watchdog", "charge-request"),
            "starved": Trial("starved", "naive-ttl", "charge-request"),
        }
        for trial in wanted.values():
            assert await engine.ready(trial.subject) is None
        return await side_by_side(engine, wanted, TTL_MS)
    finally:
        await engine.stop()


def test_a_is_not_stopped_while_redis_owes_it_an_answer(outcomes: Mapping[str, Outcome]) -> None:
    """Read a stop late, and a third of a lease counted from then: the watchdog would lose its lease."""
    outcome = outcomes["slow-redis"]
    owed: set[str] = set()
    stops = 0
    for event in outcome.history:
        if event.who != "A":
            continue
        if event.what == "request" and str(event.detail["boundary"]).startswith("redis."):
            owed.add(str(event.detail["boundary"]).removesuffix("request"))
        elif event.what == "reply":
            owed.discard(str(event.detail["boundary"]).removesuffix("reply"))
        elif event.what == "stopped":
            stops += 1
            assert not owed
    assert stops >= 2
    assert outcome.verdict.kind == EXACTLY_ONE, timeline(outcome)


def test_a_worker_that_waited_for_a_cpu_on_top_of_it_shows_nothing(outcomes: Mapping[str, Outcome]) -> None:
    """Not even the hole that every naive lock has: nobody knows whose doing it was."""
    outcome = outcomes["starved"]
    assert outcome.verdict.kind == INCONCLUSIVE
    assert outcome.verdict.charges == 2
    assert "did not run for" in outcome.verdict.reason
