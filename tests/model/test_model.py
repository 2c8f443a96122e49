"""The model agrees with the issue's table, with the paper, and with the corners the texts name."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from . import programs
from .assumptions import ALTERNATIVES, DEFAULT
from .faults import CHARGE_REQUEST, Fault, Freeze, Hold
from .machine import Ask, Exchange
from .paper import NOT_CONCERNED, ROWS
from .programs import RETRIERS, VARIANTS
from .queue import DOUBLE_CHARGE, EXACTLY_ONE, NO_CHARGE, run
from .reasons import EXPECTED, EXPECTED_SWEEP, NOT_APPLICABLE_REASONS, REASONS, SWEEP_REASONS
from .rough_nights import Busy, ThirdWorker
from .servers import LOCK, Redis
from .tables import (
    EVERY,
    FAULT_PLACES,
    LOST_REPLIES,
    SLOW_PLACES,
    boundaries,
    cells,
    derive,
    derive_retry,
    lost_acquire,
    outcome_of,
    recovery_leases,
    sweep,
    sweep_cells,
)

ISSUE_2 = """
naive-ttl         double double double double double double
long-ttl          one    one    one    one    one    double
watchdog          one    one    one    one    one    one
fencing           double one    one    double double one
watchdog-fencing  one    one    one    one    one    one
fenced-read       one    one    one    one    one    one
idempotency-key   one    one    one    one    one    one
"""
WORDS = {"double": DOUBLE_CHARGE, "one": EXACTLY_ONE}


@pytest.mark.parametrize("row", ISSUE_2.split("\n")[1:-1], ids=lambda row: row.split()[0])
def test_a_slow_charge_gives_the_table_that_must_be_measured(row: str) -> None:
    variant, *expected = row.split()
    for poll in (DEFAULT.poll, 1 / 10, 1 / 15):
        derived = [derive(variant, "slow-charge", place, replace(DEFAULT, poll=poll)) for place in SLOW_PLACES]
        assert derived == [WORDS[word] for word in expected]


@pytest.mark.parametrize("variant", VARIANTS)
def test_b_contends_in_every_slow_charge_that_ends_well(variant: str) -> None:
    for place in SLOW_PLACES:
        assert outcome_of(variant, "slow-charge", place).contended, place


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_without_a_fault_charges_once(variant: str) -> None:
    assert run(VARIANTS[variant], Fault(("", "", 0, "request"))).verdict == EXACTLY_ONE


@pytest.mark.parametrize("variant", VARIANTS)
def test_model_and_paper_agree_on_every_hand_picked_cell(variant: str) -> None:
    derived = {cell: verdict for cell in cells() if cell[0] == variant and (verdict := derive(*cell)) != EXACTLY_ONE}
    assert derived == {cell: verdict for cell, verdict in EXPECTED.items() if cell[0] == variant}


@pytest.mark.parametrize("variant", VARIANTS)
def test_model_and_paper_agree_at_every_boundary(variant: str) -> None:
    derived = {cell: verdict for cell, verdict in sweep_cells(variant).items() if verdict != EXACTLY_ONE}
    assert derived == {cell: verdict for cell, verdict in EXPECTED_SWEEP.items() if cell[0] == variant}


def test_no_cell_has_two_reasons() -> None:
    told = [cell for row in (*ROWS, *NOT_CONCERNED) for cell in row.cells()]
    assert len(told) == len(set(told))
    assert not REASONS.keys() & NOT_APPLICABLE_REASONS.keys()
    assert all(why.endswith(".") for why in (REASONS | SWEEP_REASONS | NOT_APPLICABLE_REASONS).values())


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_sweep_tries_every_fault_at_every_boundary(variant: str) -> None:
    assert len(sweep(variant)) == len(boundaries(variant)) * len(EVERY)


def test_renewals_are_boundaries_of_the_variants_that_renew_and_of_no_other() -> None:
    for name, design in VARIANTS.items():
        assert any(role == "renew" for _, role, _, _ in boundaries(name)) == design.renews


@pytest.mark.parametrize(
    ("variant", "fault", "place", "verdict"),
    [
        # a watchdog freezes with its process
        ("watchdog", "freeze", "charge-reply", DOUBLE_CHARGE),
        # harmless when the request is held: it asks after waking
        ("naive-ttl", "freeze", "paid-read-request", EXACTLY_ONE),
        # and when the deadline is checked after the reply, not for one that does not
        ("watchdog", "freeze", "paid-read-reply", EXACTLY_ONE),
        ("naive-ttl", "freeze", "paid-read-reply", DOUBLE_CHARGE),
        # with the charge on its way a deadline check comes too late
        ("watchdog", "freeze", "charge-request", DOUBLE_CHARGE),
        # fencing refuses the charge of a worker frozen before it reached the processor
        ("fencing", "freeze", "charge-request", EXACTLY_ONE),
        ("watchdog-fencing", "freeze", "charge-request", EXACTLY_ONE),
        # and cannot help between the charge and the record of it
        ("fencing", "freeze", "record-request", DOUBLE_CHARGE),
        ("watchdog-fencing", "crash", "charge-reply", DOUBLE_CHARGE),
        # asking the processor with the token does
        ("fenced-read", "freeze", "record-request", EXACTLY_ONE),
        ("fenced-read", "crash", "charge-reply", EXACTLY_ONE),
        # an advisory lock of a killed worker is free at once
        ("pg-advisory", "crash", "charge-reply", DOUBLE_CHARGE),
        ("pg-advisory", "freeze", "charge-reply", EXACTLY_ONE),
        # and a record that is written but not committed is none
        ("pg-advisory-xact", "crash", "record-reply", DOUBLE_CHARGE),
        ("pg-advisory", "crash", "record-reply", EXACTLY_ONE),
        # a crash leaves the customer uncharged for ever, unless somebody recovers
        ("reserve-confirm-naive", "crash", "charge-request", NO_CHARGE),
        ("reserve-confirm", "crash", "charge-request", EXACTLY_ONE),
        ("reserve-confirm", "freeze", "charge-request", EXACTLY_ONE),
        # the control: the lock survives, so a lock that is renewed holds
        ("watchdog", "redis-aof", "charge-request", EXACTLY_ONE),
        ("watchdog", "redis-restart", "charge-request", DOUBLE_CHARGE),
        # a key made from the invoice needs no lock
        ("idempotency-key", "redis-flush", "charge-reply", EXACTLY_ONE),
        # a token that comes again is accepted, also by a fenced read
        ("fenced-read", "redis-restart", "charge-request", DOUBLE_CHARGE),
        ("fenced-read", "counter-failover", "charge-request", DOUBLE_CHARGE),
        ("fenced-read", "redis-early-expiry", "charge-request", EXACTLY_ONE),
    ],
)
def test_the_corners_that_must_be_right(variant: str, fault: str, place: str, verdict: str) -> None:
    assert derive(variant, fault, place) == verdict


@pytest.mark.parametrize("place", FAULT_PLACES["freeze"])
@pytest.mark.parametrize("fault", ["freeze", "crash"])
@pytest.mark.parametrize("variant", ["fenced-read", "idempotency-key", "reserve-confirm"])
def test_three_designs_survive_every_freeze_and_crash(variant: str, fault: str, place: str) -> None:
    assert derive(variant, fault, place) == EXACTLY_ONE


@pytest.mark.parametrize("variant", ["fencing", "watchdog-fencing", "fenced-read"])
def test_a_counter_that_starts_again_refuses_the_next_invoice_until_it_has_caught_up(variant: str) -> None:
    found = outcome_of(variant, "counter-restart", "charge-request")
    assert [token for _, _, token in found.charges] == [9]
    assert found.next_first == NO_CHARGE
    assert (found.next_last, found.next_deliveries) == (EXACTLY_ONE, 7)


@pytest.mark.parametrize("variant", ["fencing", "watchdog-fencing", "fenced-read"])
def test_a_counter_that_is_set_back_gives_the_same_token_twice(variant: str) -> None:
    found = outcome_of(variant, "counter-aof-cut", "charge-request")
    assert [(who, token) for _, who, token in found.charges] == [("B", 9), ("A", 9)]


@pytest.mark.parametrize("how", LOST_REPLIES)
def test_only_a_key_made_from_the_invoice_survives_a_retry(how: str) -> None:
    assert [derive_retry(subject, how) for subject in RETRIERS] == [DOUBLE_CHARGE, DOUBLE_CHARGE, EXACTLY_ONE]


def test_a_lost_reply_to_set_nx_locks_its_own_worker_out_for_a_lease() -> None:
    found = lost_acquire()
    assert found.verdict == EXACTLY_ONE
    assert all(when > 1 for when, _, _ in found.charges)


def test_a_longer_lease_keeps_the_customer_locked_after_a_crash() -> None:
    recovery = {variant: recovery_leases(variant) or 0.0 for variant in VARIANTS}
    assert 0.9 < recovery["naive-ttl"] < 1.2
    assert 3.9 < recovery["long-ttl"] < 4.2
    assert recovery["pg-advisory"] < 0.1


def test_only_with_a_third_worker_a_release_that_frees_anybodys_lock_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two of them B is through when A is let go. The built-in release looks at the owner, and stands both."""

    def free(redis: Redis, _: Exchange, __: str) -> None:
        redis.become({key: entry for key, entry in redis.snapshot().items() if key != LOCK})

    design = VARIANTS["watchdog-fencing"]
    sound = {run(design, fault(CHARGE_REQUEST)).verdict for fault in (Freeze, ThirdWorker)}
    monkeypatch.setattr(programs, "release", lambda me: Ask("redis", "release", free, (me.owner,)))
    assert sound == {EXACTLY_ONE}
    assert run(design, Freeze(CHARGE_REQUEST)).verdict == EXACTLY_ONE
    assert run(design, ThirdWorker(CHARGE_REQUEST)).verdict == DOUBLE_CHARGE


def test_which_of_two_that_wait_is_the_next_owner_decides_nothing() -> None:
    late = [replace(DEFAULT, c_comes_after=leases) for leases in (0.0, 0.005, 0.007)]
    for place in FAULT_PLACES["third-worker"]:
        assert {outcome_of("fencing", "third-worker", place, assume).charges[0][1] for assume in late} == {"B", "C"}
        for variant in VARIANTS:
            assert len({derive(variant, "third-worker", place, assume) for assume in late}) == 1, (variant, place)


def test_a_watchdog_that_renews_at_the_last_moment_is_late_when_it_is_kept_busy() -> None:
    """A third of a lease leaves room; two thirds of one, which a worker that is left alone survives, do not."""
    design = VARIANTS["watchdog"]
    for thirds, verdict in ((1, EXACTLY_ONE), (2, DOUBLE_CHARGE)):
        tight = replace(design, renews_every=thirds / 3)
        assert run(tight, Hold(CHARGE_REQUEST)).verdict == EXACTLY_ONE
        assert run(tight, Busy(CHARGE_REQUEST)).verdict == verdict


def test_what_an_assumption_decides_is_known() -> None:
    """The two readings that decide most: said here so that a change of the harness's rules is noticed."""
    again = ALTERNATIVES["B is delivered again until LOCK_TTL has passed, lock lost or not"]
    assert derive("fenced-read", "redis-restart", "charge-request", again) == EXACTLY_ONE
    assert derive("fencing", "counter-restart", "charge-reply", again) == DOUBLE_CHARGE
    cut_short = ALTERNATIVES["a fault stands for 3 leases at most where the lease has not run out yet"]
    assert derive("long-ttl", "freeze", "charge-reply", cut_short) == EXACTLY_ONE


def at_renewals(variant: str, fault: str, reading: str | None = None) -> set[str]:
    """Every verdict there is at the renewals of one variant with one fault of the sweep."""
    found = sweep_cells(variant, ALTERNATIVES[reading] if reading else DEFAULT)
    return {verdict for (_, kind, place), verdict in found.items() if kind == fault and ".renew." in place}


def test_a_renewal_that_is_stuck_decides_where_the_charge_is_held_until_b_is_through() -> None:
    assert [at_renewals("watchdog", fault) for fault in EVERY] == [
        {DOUBLE_CHARGE}, {DOUBLE_CHARGE}, {EXACTLY_ONE}, {EXACTLY_ONE},
    ]  # fmt: skip
    for variant in ("watchdog-fencing", "fenced-read"):
        assert [at_renewals(variant, fault) for fault in EVERY] == [{EXACTLY_ONE}] * 4, variant


def test_a_killed_workers_held_charge_is_never_delivered() -> None:
    assert at_renewals("watchdog", "crash", "the charge is held for 1.2 leases where a renewal is the point") == {
        EXACTLY_ONE
    }
    assert at_renewals("watchdog", "crash", "it is, and outlives the worker that is killed at a renewal") == {
        DOUBLE_CHARGE
    }


def test_the_model_imports_nothing_of_the_harness() -> None:
    for path in Path(__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names.append(node.module or "")
            assert not [name for name in names if name.split(".")[0] in ("harness", "fakes", "scenarios")], path.name
