"""A subject has been cut off all the same that notices before it writes, or that wrote while the cut was being made."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from trial import Trial, assert_found_out, registered, side_by_side, timeline

from harness import kernel
from harness.bench import Bench
from harness.engine import Config, Engine
from harness.experiment import Outcome
from harness.faults._partition import Probe
from harness.faults.partition_late import PartitionLate
from harness.faults.partition_reset import PartitionReset
from harness.history import History
from harness.locks import Lease
from harness.network.tap import Fate, Message
from harness.network.toxics import Proxy
from harness.subject import Subject

TTL_MS = 1000
QUICK = Subject("quick", "callable", "tests.faults.quick:run")
RENEWS = Subject("renews", "callable", "tests.sound.asyncio_fenced_read:run")
CUT = ("partition-reset", "partition-refused")


class NothingCut(PartitionReset):
    """A's connection stands, and A has no time to use it: its charge is not answered before all is over."""

    async def cut(self, proxy: Proxy) -> None:
        """Toxiproxy was not told."""

    async def heal(self, proxy: Proxy) -> None:
        """Nor now."""

    async def seen_cut(self, probe: Probe) -> str | None:
        return None

    async def strike(self, message: Message) -> Fate:
        await super().strike(message)
        return await self.bench.hold_until_lifted(message)


class SlowlyCut(PartitionLate):
    """Cutting takes until A has asked for its lease to be renewed; A asks nothing else before that is answered."""

    async def cut(self, proxy: Proxy) -> None:
        history = self.bench.history
        before = len(history.select("request", who="A", witness="tap"))
        await proxy.add_toxic("bandwidth", "upstream", rate=0)
        while len(history.select("request", who="A", witness="tap")) == before:
            await asyncio.sleep(0.002)
        await proxy.add_toxic("bandwidth", "downstream", rate=0)


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Mapping[str, Outcome]]:
    with registered({"nothing-cut": NothingCut, "slowly-cut": SlowlyCut}), asyncio.Runner() as runner:
        yield runner.run(_run())


async def _run() -> Mapping[str, Outcome]:
    engine = Engine(Config([QUICK, RENEWS], ttl_ms=TTL_MS, cwd=str(Path(__file__).parents[2])))
    await engine.start()
    try:
        for subject in (QUICK, RENEWS):
            assert await engine.ready(subject.name) is None
        trials = {fault: Trial(fault, QUICK.name, "charge-request") for fault in (*CUT, "nothing-cut")}
        trials["slowly-cut"] = Trial("slowly-cut", RENEWS.name, "charge-request")
        return await side_by_side(engine, trials, TTL_MS)
    finally:
        await engine.stop()


@pytest.mark.parametrize("fault", CUT)
def test_a_connection_that_was_seen_to_end_is_a_partition_that_landed(
    fault: str, outcomes: Mapping[str, Outcome]
) -> None:
    history = outcomes[fault].history
    struck, lifted = history.select("fault-struck")[0].t_ms, history.select("fault-lifted")[0].t_ms
    sent = [
        event
        for event in history.select("request", who="A", witness="tap")
        if struck < event.t_ms < lifted and str(event.detail["boundary"]).startswith("redis.")
    ]
    assert sent == [], "it noticed before it wrote: that is what is tried here"
    (landed,) = history.select("landed")
    assert "connections had ended" in landed.detail["evidence"]


def test_a_connection_of_as_that_stands_and_is_not_used_is_no_partition(outcomes: Mapping[str, Outcome]) -> None:
    assert_found_out(outcomes["nothing-cut"], "had no connection that ended")


def test_what_a_asked_while_the_cut_was_made_was_cut_off_if_it_had_no_answer(outcomes: Mapping[str, Outcome]) -> None:
    (landed,) = outcomes["slowly-cut"].history.select("landed") or pytest.fail(timeline(outcomes["slowly-cut"]))
    assert "A sent 1 messages, and had no answer" in landed.detail["evidence"]


def test_the_kernel_counts_the_clients_side_of_connections_that_stand() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert kernel.connections_to(port) == 0
        with socket.create_connection(("127.0.0.1", port)):
            assert kernel.connections_to(port) == 1
            server.accept()[0].close()
            assert kernel.connections_to(port) == 0


MS = 1_000_000


@pytest.mark.parametrize(
    ("asked_ms", "answered_ms", "doubt"),
    [
        (90, None, None),  # under way when the link was cut: Redis may have got it
        (90, 95, "Redis saw A renew its lease"),
        (150, None, "Redis saw A renew its lease"),
    ],
)
def test_a_renewal_is_no_doubt_where_it_was_asked_for_before_the_cut(
    asked_ms: int, answered_ms: int | None, doubt: str | None
) -> None:
    history = History()
    zero = history.started_ns
    lease = Lease("A", zero, None, None, renewals_ns=[zero + 120 * MS])
    bench = SimpleNamespace(history=history, lease_s=1.0, a_lease=lease, struck_ns=zero + 80 * MS)
    fault = PartitionReset(cast(Bench, bench))
    fault._cut_ns, fault._lifted_ns = zero + 100 * MS, zero + 1500 * MS
    for number, (side, at_ms) in enumerate((("request", asked_ms), ("reply", answered_ms), ("request", 400))):
        if at_ms is not None:
            boundary = f"redis.eval.{1 + number // 2}.{side}"
            history.add("tap", "A", side, at_ns=zero + at_ms * MS, boundary=boundary)
    found = fault._doubt()
    assert found is None if doubt is None else doubt in (found or "")
