"""Freezes, crashes, lost replies, ended sessions: each shows that it landed, and none of them can be talked into it.

A sabotaged fault does not quite do what it should. Its subject charges once, so the run would be green; it has to be
inconclusive, with the reason. All experiments run side by side, on real servers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from trial import Trial, assert_found_out, registered, side_by_side, timeline
from worker_sabotage import (
    AcquireNotSent,
    ChildForgotten,
    ChildSurvives,
    CrashedRequestDelivered,
    FrozenRequestDelivered,
    FrozenRequestDeliveredUnseen,
    LongTimeout,
    NobodyTerminated,
    NotCommitted,
    NothingToTerminate,
    NotReset,
    PastThePooler,
    ProcessorAnswers,
    SameInstance,
    Terminated,
    ThawedTooEarly,
    WokenMeanwhile,
)

from harness import kernel
from harness.engine import Config, Engine
from harness.experiment import Outcome
from harness.faults import Fault
from harness.faults._processors_word import contradiction
from harness.faults.freeze import Freeze
from harness.history import History
from harness.settings import variant
from harness.spec import DOUBLE_CHARGE, EXACTLY_ONE
from harness.stack import pgbouncer
from harness.stack.accounts import ServerUnavailable
from harness.subject import Subject

TTL_MS = 1000
REQUEST, REPLY = "charge-request", "charge-reply"
ONE_CHARGE = "idempotency-key"
"""Whatever becomes of its lock, it charges once: what its verdict says beyond that is the harness's own doing."""
FAMILY = "family"
PIPELINED = "pipelined"
SESSION = "pg-advisory"


SABOTAGED: Mapping[str, tuple[type[Fault], str, str, str]] = {
    name: (fault, subject, place, reason)
    for name, fault, subject, place, reason in (
        ("woken-meanwhile", WokenMeanwhile, ONE_CHARGE, REPLY, "A ran for a while"),
        ("thawed-too-early", ThawedTooEarly, ONE_CHARGE, REPLY, "something woke A up"),
        ("child-forgotten", ChildForgotten, FAMILY, REPLY, "not stopped with it"),
        ("frozen-delivered", FrozenRequestDelivered, ONE_CHARGE, REQUEST, "bytes held at the thaw"),
        ("frozen-unseen", FrozenRequestDeliveredUnseen, ONE_CHARGE, REQUEST, "the processor got A's request"),
        ("frozen-nowhere", Freeze, ONE_CHARGE, "redis.flushall.1.request", "A never reached"),
        ("terminated", Terminated, ONE_CHARGE, REQUEST, "not by SIGKILL"),
        ("child-survives", ChildSurvives, FAMILY, REQUEST, "outlived the crash"),
        ("crashed-delivered", CrashedRequestDelivered, ONE_CHARGE, REQUEST, "the processor got A's request"),
        ("no-silence", ProcessorAnswers, ONE_CHARGE, "no-answer", "answered every charge"),
        ("no-error", ProcessorAnswers, ONE_CHARGE, "error-500", "answered 201, not 500"),
        ("not-committed", NotCommitted, ONE_CHARGE, "reset", "no charge of A's was committed"),
        ("acquire-not-sent", AcquireNotSent, "redis-py-lock", "reply", "did not hold the lock"),
        ("nobody-terminated", NobodyTerminated, SESSION, REQUEST, "stood for 0.3 s"),
        ("nothing-to-terminate", NothingToTerminate, SESSION, REQUEST, "no session to end"),
        ("not-reset", NotReset, SESSION, REPLY, "stood for 0.3 s"),
        ("long-timeout", LongTimeout, SESSION, REQUEST, "stood for 1.0 s"),
        ("past-the-pooler", PastThePooler, SESSION, REQUEST, "2 straight from A"),
        ("same-instance", SameInstance, SESSION, REQUEST, "never saw a session of B's"),
    )
}
HONEST: Mapping[str, tuple[str, str, str]] = {
    f"{fault}-{place}": (fault, subject, place)
    for fault, subject, place in (
        ("freeze", FAMILY, REQUEST),
        ("freeze", ONE_CHARGE, REPLY),
        ("crash", FAMILY, REQUEST),
        ("crash", ONE_CHARGE, REPLY),
        ("crash", PIPELINED, "redis.ping.3.reply"),
        ("lost-reply", ONE_CHARGE, "reset"),
        ("lost-reply", ONE_CHARGE, "no-answer"),
        ("lost-reply", ONE_CHARGE, "error-500"),
        ("lost-acquire", "redis-py-lock", "reply"),
        ("postgres-terminated", SESSION, REQUEST),
        ("postgres-reset", SESSION, REQUEST),
        ("postgres-idle-session", SESSION, REQUEST),
        ("postgres-pooler", SESSION, REQUEST),
        ("postgres-second", SESSION, REQUEST),
    )
}
WITNESS = {
    "freeze": "kernel",
    "crash": "kernel",
    "lost-reply": "processor",
    "lost-acquire": "redis",
    "postgres-terminated": "postgres",
    "postgres-reset": "postgres",
    "postgres-idle-session": "postgres",
    "postgres-pooler": "postgres",
    "postgres-second": "postgres",
}


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Mapping[str, Outcome]]:
    """Every experiment of this file, one attempt each, by its name."""
    try:
        pgbouncer.find()
    except ServerUnavailable as error:
        pytest.skip(str(error))
    with registered({name: fault for name, (fault, _, _, _) in SABOTAGED.items()}), asyncio.Runner() as runner:
        yield runner.run(_run())


async def _run() -> Mapping[str, Outcome]:
    names = (ONE_CHARGE, SESSION, "redis-py-lock")
    own = (FAMILY, PIPELINED)
    subjects = [*map(variant, names), *(Subject(name, "callable", f"{name}:run") for name in own)]
    engine = Engine(Config(subjects, ttl_ms=TTL_MS, cwd=str(Path(__file__).parent)))
    await engine.start()
    try:
        if engine.stack.postgres is None:
            pytest.skip(engine.stack.no_postgres or "no PostgreSQL")
        for subject in (*names, *own):
            assert await engine.ready(subject) is None
        wanted = {name: Trial(name, subject, place) for name, (_, subject, place, _) in SABOTAGED.items()}
        wanted |= {name: Trial(*what) for name, what in HONEST.items()}
        return await side_by_side(engine, wanted, TTL_MS)
    finally:
        await engine.stop()


@pytest.mark.parametrize("name", SABOTAGED)
def test_a_fault_that_did_not_do_what_it_should_has_not_landed(name: str, outcomes: Mapping[str, Outcome]) -> None:
    assert_found_out(outcomes[name], SABOTAGED[name][3])


@pytest.mark.parametrize("name", HONEST)
def test_a_fault_that_did_what_it_should_has_landed_by_another_witness(
    name: str, outcomes: Mapping[str, Outcome]
) -> None:
    outcome = outcomes[name]
    landed = [event.witness for event in outcome.history.select("landed")]
    assert landed == [WITNESS[HONEST[name][0]]], timeline(outcome)
    assert outcome.verdict.charges == (2 if HONEST[name][1] == SESSION else 1), timeline(outcome)


@pytest.mark.parametrize("name", ["freeze-charge-request", "crash-charge-request"])
def test_a_worker_of_several_processes_is_stopped_and_killed_whole(name: str, outcomes: Mapping[str, Outcome]) -> None:
    (event,) = outcomes[name].history.select("stopped" if name.startswith("freeze") else "killed", who="A")
    assert event.detail["processes"] == 2
    assert event.detail.get("threads", 3) >= 3


def test_how_long_the_customer_stayed_locked_is_told_by_the_locks_server(outcomes: Mapping[str, Outcome]) -> None:
    """The lease begins before the worker is killed, so what is left of it then is a bit less than a lease."""
    for name in ("crash-charge-request", "crash-charge-reply", "lost-acquire-reply"):
        outcome = outcomes[name]
        assert outcome.recovery_s is not None, name
        since = outcome.history.select("reset" if name.startswith("lost") else "killed", who="A")[0].t_ms
        gone = outcome.history.select("lock-expired", who="A")[0].t_ms
        assert 0.5 < outcome.recovery_s == pytest.approx((gone - since) / 1000, abs=0.001), name
    assert outcomes["freeze-charge-request"].recovery_s is None


@pytest.mark.parametrize("name", ["postgres-terminated-charge-request", "postgres-idle-session-charge-request"])
def test_the_lock_of_an_ended_session_is_lost_not_let_go(name: str, outcomes: Mapping[str, Outcome]) -> None:
    history = outcomes[name].history
    assert len(history.select("lock-lost", who="A")) == 1
    assert not history.select("lock-released", who="A")


def test_behind_a_pooler_b_is_granted_the_lock_that_a_still_holds(outcomes: Mapping[str, Outcome]) -> None:
    outcome = outcomes["postgres-pooler-charge-request"]
    assert outcome.verdict.kind == DOUBLE_CHARGE
    lifted = outcome.history.select("fault-lifted")[0].t_ms
    assert [event.t_ms < lifted for event in outcome.history.select("charge-committed", who="B")] == [True]
    assert all(event.t_ms > lifted for event in outcome.history.select("lock-released", who="A"))


@pytest.mark.parametrize(
    ("boundary", "arrived_ms", "doubted"),
    [
        ("processor.post-v1-charges.1.request", [20.0], True),
        ("processor.post-v1-charges.1.request", [40.0], False),
        ("processor.post-v1-charges.1.request", [], False),
        ("processor.post-v1-charges.2.request", [5.0, 40.0], False),
        ("processor.post-v1-charges.2.request", [5.0, 20.0], True),
        ("processor.post-v1-charges.1.reply", [5.0], False),
        ("processor.post-v1-charges.1.reply", [20.0], True),
        ("processor.post-v1-charges.1.reply", [], True),
        ("redis.set.1.request", [20.0], False),
    ],
)
def test_the_processor_has_its_say_in_what_was_held(boundary: str, arrived_ms: list[float], doubted: bool) -> None:
    """A is stopped at 10 ms and let go at 30."""
    history = History(started_ns=0)
    for at_ms in arrived_ms:
        history.add("processor", "A", "charge-arrived", at_ns=int(at_ms * 1e6))
    assert (contradiction(history, boundary, stopped_ms=10.0, held_until_ms=30.0) is not None) == doubted


def test_this_process_has_run_on_a_cpu_and_one_that_is_gone_has_not() -> None:
    before = kernel.ran_ns([os.getpid()])
    sum(range(10**6))
    assert kernel.ran_ns([os.getpid()]) > before
    assert kernel.ran_ns([2**22 + 1]) == 0


def test_sabotage_leaves_the_subject_with_one_charge(outcomes: Mapping[str, Outcome]) -> None:
    """Else the verdict would be a double charge, and nobody would look at the landing."""
    assert {name: outcomes[name].verdict.charges for name in SABOTAGED} == dict.fromkeys(SABOTAGED, 1)
    assert EXACTLY_ONE not in {outcomes[name].verdict.kind for name in SABOTAGED}
