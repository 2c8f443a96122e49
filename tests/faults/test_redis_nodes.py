"""A node of several that is taken away: seen to be away, and not talked into it; the job is told of all nodes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping

import pytest

from harness import faults
from harness.engine import Config, Engine
from harness.experiment import Outcome
from harness.faults import FAULTS
from harness.faults._redis_node import PLACES
from harness.faults.redis_node_down import RedisNodeDown
from harness.faults.redis_node_silent import RedisNodeSilent
from harness.nodes import Node
from harness.processes import thaw
from harness.spec import EXACTLY_ONE, INCONCLUSIVE, NOT_APPLICABLE, Spec
from harness.subject import Job, Processor, Subject

TTL_MS = 1000
PLACE = "charge-request"
CLONE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
QUORUM = Subject("quorum", "callable", "tests.sound.redlock_with_key:run", redis_nodes=3)
SINGLE = Subject("single", "callable", "tests.faults.test_redis_nodes:one_redis")
STRANGER = "redis://192.0.2.1:6379"
"""What the caller has in its environment is no node of anybody's (RFC 5737: TEST-NET-1)."""


def one_redis(job: Job) -> None:
    """Has one Redis, and says so."""
    assert job.redis_urls == ()
    assert "REDIS_URLS" not in os.environ
    Processor(job).charge(idempotency_key=job.invoice)


class BackAtOnce(RedisNodeDown):
    async def take_away(self, node: Node) -> None:
        await super().take_away(node)
        await super().bring_back(node)


class AwakeMeanwhile(RedisNodeSilent):
    async def take_away(self, node: Node) -> None:
        await super().take_away(node)
        assert node.redis.process is not None
        thaw(node.redis.process)


SABOTAGED = {
    "back-at-once": (BackAtOnce, "not refused"),
    "awake-meanwhile": (AwakeMeanwhile, "woke the second node up"),
}
HONEST = [(fault, place) for fault in ("redis-node-down", "redis-node-silent") for place in PLACES]


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Mapping[tuple[str, str, str], Outcome]]:
    """Every experiment of this file, by subject, fault and place."""
    faults.load_all()
    before = dict(FAULTS)
    for name, (fault, _) in SABOTAGED.items():
        FAULTS[name] = type(fault.__name__, (fault,), {"name": name})
    os.environ["REDIS_URLS"] = STRANGER
    try:
        with asyncio.Runner() as runner:
            yield runner.run(_run())
    finally:
        del os.environ["REDIS_URLS"]
        FAULTS.clear()
        FAULTS.update(before)


async def _run() -> Mapping[tuple[str, str, str], Outcome]:
    engine = Engine(Config([QUORUM, SINGLE], ttl_ms=TTL_MS, cwd=CLONE))
    await engine.start()
    try:
        wanted = [(QUORUM.name, *where) for where in (*HONEST, *((name, PLACE) for name in SABOTAGED))]
        wanted += [(SINGLE.name, "redis-node-down", PLACE)]
        engine.submit([Spec("test", subject, fault, place, TTL_MS) for subject, fault, place in wanted])
        return {
            (subject, fault, place): await engine.outcome(Spec("test", subject, fault, place, TTL_MS).id)
            for subject, fault, place in wanted
        }
    finally:
        await engine.stop()


Outcomes = Mapping[tuple[str, str, str], Outcome]


@pytest.mark.parametrize(("fault", "place"), HONEST)
def test_a_lock_on_a_majority_outlives_a_node_that_was_seen_to_be_away(
    fault: str, place: str, outcomes: Outcomes
) -> None:
    outcome = outcomes[QUORUM.name, fault, place]
    assert outcome.verdict.kind == EXACTLY_ONE, outcome.verdict.reason
    assert [event.witness for event in outcome.history.select("landed")] == ["kernel"]


@pytest.mark.parametrize("name", SABOTAGED)
def test_a_node_that_was_not_away_for_as_long_as_it_should_has_not_landed(name: str, outcomes: Outcomes) -> None:
    outcome = outcomes[QUORUM.name, name, PLACE]
    said = [str(event.detail["reason"]) for event in outcome.history.select("not-landed")]
    assert any(SABOTAGED[name][1] in reason for reason in said), said or outcome.verdict.reason
    assert outcome.verdict.kind == INCONCLUSIVE


def test_where_it_goes_as_the_lock_is_asked_for_a_has_its_lock_before_b_comes(outcomes: Outcomes) -> None:
    for fault in ("redis-node-down", "redis-node-silent"):
        history = outcomes[QUORUM.name, fault, "acquire-request"].history
        granted = history.select("lock-granted")
        assert granted[0].who == "A"
        assert granted[0].t_ms < history.select("fault-struck")[0].t_ms


def test_the_messages_on_a_nodes_link_are_understood_as_those_on_the_first(outcomes: Outcomes) -> None:
    history = outcomes[QUORUM.name, "redis-node-down", PLACE].history
    boundaries = {str(event.detail["boundary"]) for event in history.select("request", who="A", witness="tap")}
    assert {"redis.set.1.request", "redis-2.set.1.request", "redis-3.set.1.request"} <= boundaries


def test_a_subject_with_one_redis_has_no_other_told_to_it_and_the_fault_does_not_concern_it(
    outcomes: Outcomes,
) -> None:
    outcome = outcomes[SINGLE.name, "redis-node-down", PLACE]
    assert outcome.verdict.kind == NOT_APPLICABLE, outcome.verdict.reason
    assert "--harness-redis-nodes" in outcome.verdict.reason
