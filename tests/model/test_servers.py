"""The model's servers keep the rules that the verdicts rest on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .machine import Ask, Lost, Process, Program, Refused, Sleep
from .servers import Intent, Postgres, Processor, Redis
from .world import World


def ask(link: str, operation: Callable[..., Any], *args: Any) -> Ask:
    return Ask(link, "step", operation, args)


def told(world: World, *steps: Ask | Sleep, who: str = "A") -> list[Any]:
    """What one worker is answered when it takes these steps; a refusal is told by its code, a loss as "lost"."""
    answers: list[Any] = []

    def program() -> Program:
        for step in steps:
            try:
                answers.append((yield step))
            except Refused as refused:
                answers.append(refused.code)
            except Lost:
                answers.append("lost")

    process = Process(who, world.clock, world.wire)
    process.start(program())
    world.clock.advance(100)
    assert process.over
    return [answer for answer, step in zip(answers, steps, strict=True) if isinstance(step, Ask)]


@pytest.fixture
def world() -> World:
    return World()


def test_a_lock_is_granted_once_and_again_when_its_lease_has_run_out(world: World) -> None:
    first, second = ask("redis", Redis.acquire, "a", 1.0), ask("redis", Redis.acquire, "b", 1.0)
    assert told(world, first, second, Sleep(1.0), second) == [True, False, True]


def test_only_its_owner_extends_or_releases_a_lock(world: World) -> None:
    own = ask("redis", Redis.acquire, "a", 1.0), Sleep(0.9), ask("redis", Redis.extend, "a", 1.0), Sleep(0.5)
    foreign = ask("redis", Redis.extend, "b", 1.0), ask("redis", Redis.release, "b")
    assert told(world, *own, *foreign, ask("redis", Redis.release, "a")) == [True, True, False, False, True]


def test_tokens_rise_with_each_grant(world: World) -> None:
    draw = ask("redis", Redis.acquire_with_token, "a", 1.0)
    assert told(world, draw, draw, Sleep(1.0), draw) == [1, None, 2]


@pytest.mark.parametrize(("token", "answer"), [(1, "stale_fencing_token"), (2, 2), (3, 3), (None, None)])
def test_a_charge_with_a_token_below_the_mark_is_refused_and_an_equal_one_is_not(
    world: World, token: int | None, answer: object
) -> None:
    (_, found) = told(world, ask("processor", Processor.charge, "i", 2), ask("processor", Processor.charge, "i", token))
    assert (found if isinstance(found, str) else found.token) == answer


def test_a_token_is_compared_again_when_the_charge_commits(world: World) -> None:
    world.processor.before_commit = 1.0
    slow = Process("B", world.clock, world.wire)
    answers: list[str] = []

    def charge() -> Program:
        try:
            yield ask("processor", Processor.charge, "i", 1)
        except Refused as refused:
            answers.append(refused.code)

    slow.start(charge())
    told(world, Sleep(0.5), ask("processor", Processor.charges, "i", 2))
    assert answers == ["stale_fencing_token"]
    assert not world.processor.ledger


def test_a_read_with_a_token_raises_the_mark_and_a_stale_one_is_refused(world: World) -> None:
    steps = [ask("processor", Processor.charges, "i", 2), ask("processor", Processor.charges, "i", 1)]
    assert told(world, *steps, ask("processor", Processor.charge, "i", 1)) == [[], *["stale_fencing_token"] * 2]


def test_a_key_replays_its_charge_and_says_so_while_it_is_in_flight(world: World) -> None:
    world.processor.before_commit = 1.0
    keyed = ("i", None, "key")
    impatient = Ask("processor", "step", Processor.charge, keyed, timeout=0.1)
    again = ask("processor", Processor.charge, *keyed)
    lost, busy, replayed = told(world, impatient, again, Sleep(2.0), again)
    assert (lost, busy) == ("lost", "idempotency_key_in_use")
    assert world.processor.ledger == [replayed]


def test_a_voided_intent_is_never_charged_and_a_charged_one_is_never_voided(world: World) -> None:
    void, charge = (ask("processor", Processor.void, "x"), ask("processor", Processor.charge, "i", None, None, "x"))
    assert told(world, void, charge) == [None, "intent_voided"]
    other = ask("processor", Processor.charge, "i", None, None, "y")
    assert told(world, other, ask("processor", Processor.void, "y"))[1] == "intent_charged"


def test_an_ended_session_frees_its_lock_and_its_transaction_never_was(world: World) -> None:
    lock = ask("postgres", Postgres.try_lock)
    steps = [ask("postgres", Postgres.begin), lock, ask("postgres", Postgres.write, "row", 1)]
    assert told(world, *steps, ask("postgres", Postgres.read, "row"))[3] == 1
    assert told(world, ask("postgres", Postgres.read, "row"), lock, who="B") == [None, True]


def test_an_intent_is_inserted_once_and_replaced_by_its_id_only(world: World) -> None:
    first, second = Intent("a", 0.0), Intent("b", 0.0)
    insert = [ask("postgres", Postgres.insert_if_absent, "row", intent) for intent in (first, second)]
    replace = [ask("postgres", Postgres.replace_if, "row", name, second) for name in ("b", "a")]
    assert told(world, *insert, *replace) == [True, False, False, True]
    assert world.postgres["A"].rows == {"row": second}


def test_a_frozen_process_finds_what_came_meanwhile_when_it_wakes(world: World) -> None:
    answers: list[Any] = []
    process = Process("A", world.clock, world.wire)

    def program() -> Program:
        answers.append((yield ask("redis", Redis.get, "key")))

    process.start(program())
    world.clock.after(0.051, lambda: setattr(process, "frozen", True))
    world.clock.advance(5)
    assert not process.over
    process.thaw()
    assert process.over
    assert answers == [None]


def test_a_request_that_reached_the_processor_outlives_its_client(world: World) -> None:
    world.processor.before_commit = 1.0
    process = Process("A", world.clock, world.wire)

    def program() -> Program:
        yield ask("processor", Processor.charge, "i")

    process.start(program())
    world.clock.after(0.5, process.kill)
    world.clock.advance(5)
    assert len(world.processor.ledger) == 1
