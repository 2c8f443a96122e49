"""When B really contended: the corners of the window, one by one, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.contention import contended, contention_window
from harness.history import Event, History
from harness.verdict import judge

from .story import BARE, FROZEN, Held, Sent, Story, Worker, as_events


def history(story: Story) -> History:
    return History(as_events(story), started_ns=0)


def asks(story: Story, *sent: Sent) -> Story:
    return replace(story, sent=(*story.sent, *sent))


def test_the_story_itself_is_a_pass() -> None:
    assert judge(as_events(FROZEN)).kind == "exactly-one"


@pytest.mark.parametrize(
    ("change", "window"),
    [
        ({}, (1010, 1300)),
        # A's lease was over sooner, by the server's account
        ({"held": (Held("A", 10, 400, "lock-lost"),)}, (400, 1300)),
        ({"held": (Held("A", 10, 400, "lock-expired"),)}, (400, 1300)),
        # A let go of it after its charge
        ({"held": (Held("A", 10, 400, "lock-released"),)}, (400, 1300)),
        # and before it: the lock guards nothing
        ({"held": (Held("A", 10, 30, "lock-released"),)}, (1010, 1300)),
        # it was over before the fault struck
        ({"held": (Held("A", 10, 48, "lock-expired"),)}, (50, 1300)),
        # a longer lease counts from LOCK_TTL_MS on all the same
        ({"held": (Held("A", 10, 4010),)}, (1010, 1300)),
        # A never took the lock, or only when it had been let go
        ({"held": ()}, (1050, 1300)),
        ({"held": (Held("A", 1350),)}, (1050, 1300)),
        ({"held": (), "lock": None}, (1050, 1300)),
        # whose it was nobody knows: then it was A's
        ({"held": (Held("?", 20),)}, (1020, 1300)),
        # pg_locks, read now and then
        ({"held": (), "lock": "advisory lock 7"}, (50, 1300)),
        ({"held": (Held("A", 10),), "lock": "advisory lock 7"}, (1010, 1300)),
        # A took it again later: its first lease is the one that the fault is about
        ({"held": (Held("A", 10, 300), Held("A", 500, 1200))}, (300, 1300)),
        # never let go
        ({"let_go": None}, (1010, float("inf"))),
    ],
)
def test_the_window_opens_when_the_lock_keeps_nobody_out(
    change: dict[str, object], window: tuple[float, float]
) -> None:
    assert contention_window(history(replace(BARE, **change))) == window  # type: ignore[arg-type]


def test_without_a_strike_there_is_no_window() -> None:
    assert contention_window(history(replace(FROZEN, struck=None))) is None
    assert not contended(history(replace(FROZEN, struck=None)))


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ((), False),
        ((Sent("B", 1000, 1001),), False),
        ((Sent("B", 1016, 1017),), True),
        # within the clocks' error at both ends
        ((Sent("B", 1014, 1015),), False),
        ((Sent("B", 1295, 1299),), False),
        ((Sent("B", 1294, 1299),), True),
        # a wait that reaches into the window, spans it, or ends before it
        ((Sent("B", 100, 1100),), True),
        ((Sent("B", 100, 2500),), True),
        ((Sent("B", 100, 900),), False),
        # asked only when A had been let go
        ((Sent("B", 1310, 1311),), False),
        # never answered: B waited until it ended (1150)
        ((Sent("B", 100),), True),
        # or until it went on to something else
        ((Sent("B", 100), Sent("B", 900, 901)), False),
        # messages of A and C are none of B's
        ((Sent("A", 1100, 1101), Sent("C", 1100, 1101)), False),
    ],
)
def test_a_message_counts_that_is_under_way_in_the_window(sent: tuple[Sent, ...], expected: bool) -> None:
    assert contended(history(asks(BARE, *sent))) is expected


@pytest.mark.parametrize(("ended", "expected"), [(1000, False), (1015, False), (1016, True)])
def test_an_unanswered_request_is_waited_for_until_b_ends(ended: int, expected: bool) -> None:
    workers = (FROZEN.workers[0], Worker("B", 20, ended), FROZEN.workers[2])
    assert contended(history(asks(replace(BARE, workers=workers), Sent("B", 100)))) is expected


@pytest.mark.parametrize("boundary", ["postgres.terminate.1.request", "postgres.cancel.1.request"])
def test_a_goodbye_that_nobody_answers_is_no_wait(boundary: str) -> None:
    events = [*as_events(BARE), Event(1000, "tap", "B", "request", {"boundary": boundary})]
    assert not contended(History(events))
    asked = [*as_events(BARE), Event(1000, "tap", "B", "request", {"boundary": "postgres.select.1.request"})]
    assert contended(History(asked))


@pytest.mark.parametrize(
    "boundary",
    [
        "redis.ping.3.request",
        "redis-2.ping.1.request",
        "redis.client-setinfo.1.request",
        "redis.client-no-evict.1.request",
        "redis.select.1.request",
        "postgres.startup.1.request",
        "postgres.password.1.request",
    ],
)
def test_getting_a_connection_is_not_yet_contending(boundary: str) -> None:
    """A second worker that only pings has not so much as looked at the lock."""
    asked = Event(1100, "tap", "B", "request", {"boundary": boundary})
    answered = Event(1101, "tap", "B", "reply", {"boundary": boundary.replace("request", "reply")})
    assert not contended(History([*as_events(BARE), asked, answered]))


def test_only_what_the_tap_saw_is_a_message_of_b() -> None:
    said = Event(1100, "worker", "B", "said", {"event": "request", "boundary": "redis.get.1.request"})
    assert not contended(History([*as_events(BARE), said]))


@pytest.mark.parametrize(
    ("granted", "expected"), [(1009, False), (1010, True), (1294, True), (1295, False), (1310, False)]
)
def test_b_contends_by_being_granted_the_lock_that_a_has_no_more(granted: int, expected: bool) -> None:
    held = (Held("A", 10, 1010), Held("B", granted, granted + 5, "lock-released"))
    assert contended(history(replace(BARE, held=held))) is expected


@pytest.mark.parametrize(("granted", "expected"), [(49, False), (54, False), (55, True), (1294, True), (1295, False)])
def test_b_contends_by_being_granted_a_lock_that_a_never_took(granted: int, expected: bool) -> None:
    held = (Held("B", granted, granted + 5, "lock-released"),)
    assert contended(history(replace(BARE, held=held))) is expected


@pytest.mark.parametrize(
    ("granted", "expected"), [(54, False), (55, True), (194, True), (195, False), (1199, False), (1200, True)]
)
def test_b_contends_by_being_granted_a_lock_that_a_takes_later(granted: int, expected: bool) -> None:
    """A was held up before it asked for the lock, and went on of itself (a timeout of its own) while B was through."""
    held = tuple(sorted((Held("B", granted, granted + 5), Held("A", 200)), key=lambda lease: lease.granted))
    assert contended(history(replace(BARE, held=held))) is expected


def test_a_lock_let_go_early_is_not_contended_for_by_taking_it() -> None:
    held = (Held("A", 10, 30, "lock-released"), Held("B", 100, 120, "lock-released"))
    assert not contended(history(replace(BARE, held=held)))


def test_a_dead_worker_is_let_go_when_the_queue_says_so() -> None:
    """A crash ends A at once; its lease keeps B out all the same, until it has run out."""
    workers = (Worker("A", 0, 50), *FROZEN.workers[1:])
    dead = replace(BARE, workers=workers)
    assert not contended(history(asks(dead, Sent("B", 900, 901))))
    assert contended(history(asks(dead, Sent("B", 1100, 1101))))


def test_a_baseline_needs_a_message_of_b_and_no_window() -> None:
    baseline = replace(BARE, baseline=True, landed_by=frozenset({"queue"}))
    assert not judge(as_events(baseline)).contended
    assert judge(as_events(baseline)).kind == "inconclusive"
    assert judge(as_events(replace(baseline, sent=FROZEN.sent))).kind == "exactly-one"


def test_where_nothing_goes_wrong_a_stall_decides_nothing() -> None:
    """A baseline shows that the subject works at all; with a fault the same stall is a doubt."""
    stalled = replace(FROZEN, stall_ms=800.0)
    assert judge(as_events(stalled)).kind == "inconclusive"
    assert judge(as_events(replace(stalled, baseline=True, landed_by=frozenset({"queue"})))).kind == "exactly-one"
