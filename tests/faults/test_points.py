"""Which message is the read, the charge, the record, the release: of jobs of many shapes, from what they send alone."""

from __future__ import annotations

from typing import Any

import pytest

from harness.faults.crash import Crash
from harness.faults.freeze import Freeze
from harness.network.tap import Message
from harness.points import points
from harness.profile import Profile

LOCK = "lock:cus-1"
RELEASE = b"if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"


def redis(*args: str | bytes) -> tuple[str, str, dict[str, Any]]:
    words = [arg if isinstance(arg, bytes) else arg.encode() for arg in args]
    label = "eval-1234" if args[0] == "eval" else str(args[0])
    return "redis", label, {"args": words}


def sql(text: str) -> tuple[str, str, dict[str, Any]]:
    return "postgres", text.split()[0].lower(), {"sql": text}


def http(method: str, path: str) -> tuple[str, str, dict[str, Any]]:
    return "processor", f"{method}-{path}".lower(), {"method": method}


def sent(*messages: tuple[str, str, dict[str, Any]]) -> list[Message]:
    """The requests of one worker, numbered as the tap numbers them."""
    seen: list[Message] = []
    for link, label, info in messages:
        n = 1 + sum(message.link == link and message.label == label for message in seen)
        seen.append(Message(link, label, n, "request", b"", info, None, 0))  # type: ignore[arg-type]
    return seen


CONNECT_REDIS = (
    redis("hello", "3"),
    ("redis", "client-setinfo", {"args": [b"CLIENT", b"SETINFO"]}),
    redis("select", "7"),
)
CONNECT_PG = ("postgres", "startup", {"sql": ""})
LEAVE_PG = ("postgres", "terminate", {"sql": ""})
ACQUIRE, LET_GO = redis("set", LOCK, "me", "NX"), redis("eval", RELEASE, "1", LOCK, "me")
CHARGE, LIST = http("POST", "v1-charges"), http("GET", "v1-charges")
TRY, UNLOCK = sql("SELECT pg_try_advisory_lock(1)"), sql("SELECT pg_advisory_unlock(1)")
PAID, RECORD = sql("SELECT charge FROM invoices"), sql("INSERT INTO invoices VALUES (1)")

JOBS = {
    "a lock in Redis": (
        (*CONNECT_REDIS, ACQUIRE, ACQUIRE, redis("get", "paid:1"), CHARGE, redis("set", "paid:1", "ch"), LET_GO),
        LOCK,
        {"paid-read": "redis.get.1", "record": "redis.set.3", "release": "redis.eval-1234.1"},
    ),
    "the processor is asked": (
        (ACQUIRE, LIST, CHARGE, redis("set", "paid:1", "ch"), LET_GO),
        LOCK,
        {"paid-read": "processor.get-v1-charges.1", "record": "redis.set.2", "release": "redis.eval-1234.1"},
    ),
    "renewed until the last moment": (
        (ACQUIRE, redis("get", "paid:1"), LET_GO, CHARGE, LET_GO, redis("set", "paid:1", "ch"), LET_GO),
        LOCK,
        {"paid-read": "redis.get.1", "record": "redis.set.2", "release": "redis.eval-1234.3"},
    ),
    "a script reads": (
        (ACQUIRE, redis("eval", b"return redis.call('GET', KEYS[1])", "1", "paid:1"), CHARGE, LET_GO),
        LOCK,
        {"paid-read": "redis.eval-1234.1", "release": "redis.eval-1234.2"},
    ),
    "what it wrote before it charged is no question": (
        (
            ACQUIRE,
            redis("get", "it:1"),
            redis("set", "intent:1", "x"),
            CHARGE,
            redis("set", "intent:1", "y"),
            LET_GO,
        ),
        LOCK,
        {"paid-read": "redis.get.1", "record": "redis.set.3", "release": "redis.eval-1234.1"},
    ),
    "an advisory lock that is unlocked": (
        (CONNECT_PG, CONNECT_PG, TRY, PAID, CHARGE, RECORD, UNLOCK, LEAVE_PG, LEAVE_PG),
        None,
        {"paid-read": "postgres.select.2", "record": "postgres.insert.1", "release": "postgres.select.3"},
    ),
    "an advisory lock of a transaction": (
        (CONNECT_PG, sql("BEGIN"), TRY, PAID, CHARGE, RECORD, sql("COMMIT"), LEAVE_PG),
        None,
        {"paid-read": "postgres.select.2", "record": "postgres.insert.1", "release": "postgres.commit.1"},
    ),
    "an advisory lock that ends with its session": (
        (CONNECT_PG, TRY, PAID, CHARGE, RECORD, LEAVE_PG),
        None,
        {"paid-read": "postgres.select.2", "record": "postgres.insert.1", "release": "postgres.terminate.1"},
    ),
    "neither lock nor record": ((LIST, CHARGE), None, {"paid-read": "processor.get-v1-charges.1"}),
}


@pytest.mark.parametrize("job", JOBS)
def test_the_points_of_a_job_are_told_from_its_messages(job: str) -> None:
    messages, lock, expected = JOBS[job]
    assert points(sent(*messages), lock) == {"charge": "processor.post-v1-charges.1", **expected}


def test_a_lock_that_is_let_go_before_the_charge_has_its_release_there() -> None:
    messages = sent(ACQUIRE, PAID, LET_GO, CHARGE, CONNECT_PG, sql("UPDATE intents SET charge = 1"), LEAVE_PG)
    found = points(messages, LOCK, early=True)
    assert (found["release"], found["record"]) == ("redis.eval-1234.1", "postgres.update.1")
    assert found["paid-read"] == "postgres.select.1"
    assert "release" not in points(messages[3:], LOCK)


def test_a_worker_that_never_charges_has_no_points() -> None:
    assert points(sent(ACQUIRE, redis("get", "paid:1"), LET_GO), LOCK) == {}


@pytest.mark.parametrize("fault", [Freeze, Crash])
@pytest.mark.parametrize("place", ["release-request", "postgres.terminate.1.request"])
def test_who_says_goodbye_to_postgres_may_have_ended_before_it_can_be_stopped(
    fault: type[Freeze] | type[Crash], place: str
) -> None:
    """Where a subject has no lock its release may be the end of its session: by either name it is the same message."""
    profile = Profile("x", points={"charge": "processor.post-v1-charges.1", "release": "postgres.terminate.1"})
    assert "goodbye" in (fault.inapplicable(profile, place) or "")
    assert fault.inapplicable(profile, "charge-request") is None
