"""The two variants with an advisory lock: what each says it guarantees, and each hole it says it has."""

from __future__ import annotations

import signal

import psycopg
import pytest

from harness.stack.postgres import variants_schema
from harness.variants import pg_advisory, pg_advisory_xact
from postgres.shop import EIGHT_LEASES_OF_A_SHORT_ONE_MS, Open, until

ADVISORY = ("pg_advisory", "pg_advisory_xact")


@pytest.mark.parametrize("variant", ADVISORY)
def test_whoever_gets_no_advisory_lock_in_time_gives_up(invoice: Open, variant: str) -> None:
    bill = invoice(variant, lease_ms=EIGHT_LEASES_OF_A_SHORT_ONE_MS)
    with psycopg.connect(bill.servers.postgres.url(bill.database)) as holder:
        holder.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [bill.customer])
        assert bill.run("A")[0] == 75
    assert bill.charged_by() == []


@pytest.mark.parametrize("variant", ADVISORY)
def test_the_server_itself_accounts_for_the_advisory_lock(invoice: Open, variant: str) -> None:
    bill = invoice(variant)
    bill.rule(fail="hold-before-commit")
    bill.deliver("A")
    bill.wait_for("charge-arrived", "A")
    (lock,) = bill.call(bill.servers.postgres.advisory_locks(bill.database))
    assert lock.granted
    bill.lift()
    assert bill.workers[0].end()[0] == 0
    assert bill.call(bill.servers.postgres.advisory_locks(bill.database)) == []


@pytest.mark.parametrize("variant", ADVISORY)
def test_hole_an_advisory_lock_whose_worker_dies_after_the_charge_charges_again(invoice: Open, variant: str) -> None:
    bill = invoice(variant)
    bill.rule(fail="hold-after-commit")
    worker = bill.deliver("A")
    bill.wait_for("charge-committed", "A")
    worker.crash()
    bill.lift()
    assert bill.run("C")[0] == 0
    assert bill.charged_by() == ["A", "C"]


@pytest.mark.parametrize("variant", ADVISORY)
def test_hole_an_advisory_lock_whose_session_is_ended_charges_twice(invoice: Open, variant: str) -> None:
    bill = invoice(variant)
    bill.rule(fail="hold-before-commit", who="A")
    first = bill.deliver("A")
    bill.wait_for("charge-arrived", "A")
    (lock,) = bill.call(bill.servers.postgres.advisory_locks(bill.database))
    assert bill.call(bill.servers.postgres.terminate(bill.database, lock.pid))
    assert bill.run("B")[0] == 0
    bill.lift()
    status, said = first.end()
    assert bill.charged_by() == ["B", "A"]
    # The session's lock is missed only when it is let go; the transaction cannot be committed any more.
    assert (status == 0, said[-1]["event"]) == (
        (True, "lock-lost") if variant == "pg_advisory" else (False, "acquired")
    )


def test_hole_a_transaction_idle_for_too_long_is_ended_and_charges_twice(invoice: Open) -> None:
    bill = invoice("pg_advisory_xact")
    bill.call(bill.servers.postgres.configure(bill.database, {"idle_in_transaction_session_timeout": "100ms"}))
    bill.rule(fail="hold-before-commit", who="A")
    first = bill.deliver("A")
    bill.wait_for("charge-arrived", "A")
    until(lambda: not bill.call(bill.servers.postgres.advisory_locks(bill.database)))
    # The second worker has as long as it needs: on a busy machine its own charge may take those 100 ms.
    bill.call(bill.servers.postgres.configure(bill.database, {"idle_in_transaction_session_timeout": "0"}))
    assert bill.run("B")[0] == 0
    bill.lift()
    assert first.end()[0] != 0
    assert bill.charged_by() == ["B", "A"]


@pytest.mark.parametrize("variant", ADVISORY)
def test_a_frozen_worker_keeps_its_advisory_lock(invoice: Open, variant: str) -> None:
    bill = invoice(variant, lease_ms=EIGHT_LEASES_OF_A_SHORT_ONE_MS)
    bill.rule(fail="hold-before-commit")
    first = bill.deliver("A")
    bill.wait_for("charge-arrived", "A")
    first.signal(signal.SIGSTOP)
    assert bill.run("B")[0] == 75
    bill.lift()
    first.signal(signal.SIGCONT)
    assert first.end()[0] == 0
    assert bill.charged_by() == ["A"]


def test_both_advisory_variants_mean_the_same_table() -> None:
    assert pg_advisory.SCHEMA == pg_advisory_xact.SCHEMA
    assert pg_advisory.SCHEMA in variants_schema()
