"""Partitions and losses of Redis: each shows that it landed, and none of them can be talked into it.

A sabotaged fault does not quite do what it should. Its subject charges once, so the run would be green; it has to be
inconclusive, with the reason. All experiments run side by side, on real servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest
from redis_sabotage import (
    AnotherDatabaseFlushed,
    AnotherSyncCame,
    CounterNotEvicted,
    CounterSpared,
    CutOneWay,
    ExpiresLater,
    LostNotLate,
    NothingCut,
    NothingCutOff,
    NotRefused,
    NotRestarted,
    OnlyLiveConnectionsReset,
    RefusedNotReset,
    ReplicaKeepsUp,
    RestartedWithFile,
    RestartedWithoutFile,
    RoomEnough,
)
from trial import Trial, assert_found_out, registered, side_by_side, timeline

from harness.engine import Config, Engine
from harness.experiment import Outcome
from harness.faults import Fault
from harness.settings import variant
from harness.spec import EXACTLY_ONE, NO_CHARGE

TTL_MS = 1000
PLACE = "charge-request"
ONE_CHARGE = "idempotency-key"
"""Whatever becomes of its lock, it charges once: what its verdict says beyond that is the harness's own doing."""
FENCED = "fenced-read"


SABOTAGED: Mapping[str, tuple[type[Fault], str, str]] = {
    name: (fault, subject, reason)
    for name, fault, subject, reason in (
        ("nothing-cut", NothingCut, ONE_CHARGE, "reached Redis while it was cut"),
        ("cut-one-way", CutOneWay, ONE_CHARGE, "reached Redis while it was cut"),
        ("lost-not-late", LostNotLate, ONE_CHARGE, "it was lost, not late"),
        ("not-refused", NotRefused, ONE_CHARGE, "which should have been dropped"),
        ("refused-not-reset", RefusedNotReset, ONE_CHARGE, "was refused, not reset"),
        ("only-live-connections-reset", OnlyLiveConnectionsReset, ONE_CHARGE, "which should have been reset"),
        ("not-restarted", NotRestarted, ONE_CHARGE, "was not started again"),
        ("restarted-with-file", RestartedWithFile, ONE_CHARGE, "still had A's lock"),
        ("another-database-flushed", AnotherDatabaseFlushed, ONE_CHARGE, "still had A's lock"),
        ("expires-later", ExpiresLater, ONE_CHARGE, "still had A's lock"),
        ("room-enough", RoomEnough, ONE_CHARGE, "evicted no key"),
        ("restarted-without-file", RestartedWithoutFile, ONE_CHARGE, "should have kept"),
        ("nothing-cut-off", NothingCutOff, ONE_CHARGE, "still had A's lock"),
        ("another-sync-came", AnotherSyncCame, ONE_CHARGE, "another may have come first"),
        ("replica-keeps-up", ReplicaKeepsUp, ONE_CHARGE, "had got lock:"),
        ("counter-spared", CounterSpared, FENCED, "still had the counter"),
        ("counter-not-evicted", CounterNotEvicted, FENCED, "still had the counter"),
    )
}
HONEST = (
    *("partition-late", "partition-refused", "partition-reset"),
    *("redis-restart", "redis-aof", "redis-aof-cut", "redis-flush", "redis-eviction", "redis-failover"),
    "redis-early-expiry",
)
COUNTERS = {"counter-flush": (FENCED, PLACE), "counter-aof-cut": (FENCED, "charge-reply")}


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Mapping[str, Outcome]]:
    """Every experiment of this file, one attempt each, by its fault."""
    with registered({name: fault for name, (fault, _, _) in SABOTAGED.items()}), asyncio.Runner() as runner:
        yield runner.run(_run())


def disturbed(outcome: Outcome, *, honest: bool) -> bool:
    """Whether a busy machine has decided something: a stall, or a fault that took longer than a lease allows.

    An honest fault that has not landed for whatever reason has another try.
    """
    told = [*outcome.history.select("not-landed"), *outcome.history.select("harness-failed")]
    doubts = [str(event.detail["reason"]) for event in told]
    return bool(outcome.history.select("stall")) or any(honest or " took " in doubt for doubt in doubts)


async def _run() -> Mapping[str, Outcome]:
    engine = Engine(Config([variant(ONE_CHARGE), variant(FENCED)], ttl_ms=TTL_MS))
    await engine.start()
    try:
        for subject in (ONE_CHARGE, FENCED):
            assert await engine.ready(subject) is None
        wanted = {name: Trial(name, subject, PLACE) for name, (_, subject, _) in SABOTAGED.items()}
        wanted |= {name: Trial(name, ONE_CHARGE, PLACE) for name in HONEST}
        wanted |= {name: Trial(name, *how) for name, how in COUNTERS.items()}
        found = await side_by_side(engine, wanted, TTL_MS)
        for name, trial in wanted.items():
            for _ in range(2):
                if disturbed(found[name], honest=name not in SABOTAGED):
                    found |= await side_by_side(engine, {name: trial}, TTL_MS)  # alone
        return found
    finally:
        await engine.stop()


@pytest.mark.parametrize("name", SABOTAGED)
def test_a_fault_that_did_not_do_what_it_should_has_not_landed(name: str, outcomes: Mapping[str, Outcome]) -> None:
    assert_found_out(outcomes[name], SABOTAGED[name][2])


@pytest.mark.parametrize("name", HONEST)
def test_a_fault_that_did_what_it_should_has_landed_by_the_servers_account(
    name: str, outcomes: Mapping[str, Outcome]
) -> None:
    outcome = outcomes[name]
    assert [event.witness for event in outcome.history.select("landed")] == ["redis"], timeline(outcome)
    assert outcome.verdict.charges == 1


@pytest.mark.parametrize("name", [name for name in HONEST if name.startswith("redis-") and name != "redis-aof"])
def test_a_lost_lock_is_lost_in_the_account_before_b_is_granted_it(name: str, outcomes: Mapping[str, Outcome]) -> None:
    history = outcomes[name].history
    (granted,) = history.select("lock-granted", who="A")
    lost = [event for event in history if event.who == "A" and event.what in ("lock-lost", "lock-expired")]
    assert len(lost) == 1
    to_b = history.select("lock-granted", who="B")
    assert granted.t_ms < lost[0].t_ms <= to_b[0].t_ms
    assert lost[0].what == ("lock-expired" if name == "redis-early-expiry" else "lock-lost")


def test_the_lock_that_survives_a_restart_is_let_go_by_a_alone(outcomes: Mapping[str, Outcome]) -> None:
    history = outcomes["redis-aof"].history
    assert [event.who for event in history.select("lock-lost")] == []
    (released,) = history.select("lock-released", who="A")
    assert all(event.t_ms > released.t_ms for event in history.select("lock-granted", who="B"))


def test_a_partition_leaves_the_link_to_the_processor_alone(outcomes: Mapping[str, Outcome]) -> None:
    history = outcomes["partition-refused"].history
    lifted = history.select("fault-lifted")[0].t_ms
    (answered,) = history.select("charge-answered", who="A")
    assert answered.t_ms < lifted


def test_the_verdict_covers_the_customers_next_invoice(outcomes: Mapping[str, Outcome]) -> None:
    """The counter begins at 1 again: A's own invoice is charged once, and the next one is refused."""
    outcome = outcomes["counter-flush"]
    (charge,) = outcome.history.select("charge", witness="ledger")
    assert charge.detail["invoice"] == outcome.history.select("delivered", who="A")[0].detail["invoice"]
    assert outcome.verdict.kind == NO_CHARGE
    assert "next invoice" in outcome.verdict.reason
    reads = outcome.history.select("charges-read", who="C")
    assert [event.detail.get("code") for event in reads[-1:]] == ["stale_fencing_token"]


def test_the_next_invoice_counts_as_one_of_its_own(outcomes: Mapping[str, Outcome]) -> None:
    """The counter is set back, and what was charged already is known to the processor: two invoices, a charge each."""
    outcome = outcomes["counter-aof-cut"]
    charged = [str(charge.detail["invoice"]) for charge in outcome.history.select("charge", witness="ledger")]
    assert len(charged) == len(set(charged)) == 2
    assert outcome.verdict.kind == EXACTLY_ONE
    assert outcome.verdict.charges == 1


def test_a_has_the_ninth_token_after_eight_clean_invoices(outcomes: Mapping[str, Outcome]) -> None:
    for name in ("counter-flush", "counter-aof-cut"):
        history = outcomes[name].history
        tokens = [e.detail["token"] for e in history.select("request", who="A", witness="tap") if e.detail.get("token")]
        assert set(tokens) == {"9"}
        assert len({event.detail["invoice"] for event in history.select("delivered")}) == 2
