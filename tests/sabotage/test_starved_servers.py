"""A server that had to wait for a CPU decides nothing where no message passes it, and may have where one does."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping

import pytest

from harness.engine import Engine
from harness.experiment import Outcome
from harness.history import now_ns
from harness.monitor import Monitor, Stall
from harness.spec import INCONCLUSIVE, Spec
from sabotage.workshop import SUBJECT, TTL_MS, engine

STARVED_MS = 7_777.0
"""No stall that this machine makes by itself is taken for it."""
SERVERS = ("redis", "toxiproxy", "processor", "postgres", "the harness")
ON_PATH: Mapping[tuple[str, str], frozenset[str]] = {
    ("freeze", "charge-request"): frozenset(("redis", "processor", "the harness")),
    ("slow-charge", "before-commit"): frozenset(("redis", "processor", "the harness")),
    ("slow-charge", "request-wire"): frozenset(("redis", "toxiproxy", "processor", "the harness")),
    ("partition-late", "charge-request"): frozenset(("redis", "toxiproxy", "processor", "the harness")),
    ("redis-restart", "charge-request"): frozenset(("processor", "the harness")),
}
"""(fault, place) -> the servers that its messages pass; a Redis of the experiment's own is not the run's."""


class Starved(Monitor):
    """A machine on which every server of the run has been starved, whatever else it has seen."""

    def since(self, at_ns: int, threshold_ms: float) -> list[Stall]:
        return [Stall(now_ns(), STARVED_MS, server) for server in SERVERS]


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Mapping[tuple[str, str], Outcome]]:
    with asyncio.Runner() as runner:
        yield runner.run(_run())


async def _run() -> Mapping[tuple[str, str], Outcome]:
    made: Engine = await engine()
    made.monitor.__class__ = Starved
    try:
        specs = {
            (fault, place): Spec("sabotage", SUBJECT, fault, place, TTL_MS, params=PARAMS) for fault, place in ON_PATH
        }
        done = await asyncio.gather(*(made.benches.run(spec, made.profiles[SUBJECT]) for spec in specs.values()))
        return dict(zip(specs, done, strict=True))
    finally:
        await made.stop()


PARAMS = {"delay_leases": 2.5, "slower_night_leases": 5.0}


@pytest.mark.parametrize("where", ON_PATH, ids="@".join)
def test_only_servers_on_an_experiments_path_have_decided_something(
    where: tuple[str, str], outcomes: Mapping[tuple[str, str], Outcome]
) -> None:
    outcome = outcomes[where]
    stalls = outcome.history.select("stall")
    told = {str(event.detail["of"]) for event in stalls if event.detail["ms"] == STARVED_MS}
    assert told == ON_PATH[where]
    assert outcome.verdict.kind == INCONCLUSIVE
    assert outcome.verdict.charges == 1


def test_a_server_that_somebody_stopped_for_a_while_is_told_as_a_stall() -> None:
    """It waits for no CPU meanwhile, and answers nobody: a container that was paused, a debugger."""

    async def watched(pid: int) -> list[Stall]:
        monitor = Monitor(lambda: {"redis": pid})
        monitor.start()
        try:
            async with asyncio.timeout(30):
                os.kill(pid, signal.SIGSTOP)
                while not monitor._stopped_ns:
                    await asyncio.sleep(0.01)
                stopped_ns = now_ns()
                while now_ns() - stopped_ns < 300_000_000:
                    await asyncio.sleep(0.01)
                os.kill(pid, signal.SIGCONT)
                while not (stalls := [s for s in monitor.since(0, 250.0) if s.of == "redis"]):
                    await asyncio.sleep(0.01)
                return stalls
        finally:
            await monitor.stop()

    with subprocess.Popen(["sleep", "60"]) as server:
        try:
            (stall,) = asyncio.run(watched(server.pid))
        finally:
            server.kill()
    assert stall.ms >= 300
