"""The four variants as processes of their own: what each says it guarantees, and each hole it says it has."""

from __future__ import annotations

import os
import signal
from typing import Any

import psycopg
import pytest
import redis
import urllib3

from harness.stack.postgres import variants_schema
from harness.subject import Job
from harness.variants import pg_advisory, pg_advisory_xact, reserve_confirm, reserve_confirm_naive
from postgres.shop import LEASE_MS, Invoice, Open, until

ALL = ("pg_advisory", "pg_advisory_xact", "reserve_confirm", "reserve_confirm_naive")
ADVISORY = ("pg_advisory", "pg_advisory_xact")
RESERVING = ("reserve_confirm", "reserve_confirm_naive")
EIGHT_LEASES_OF_A_SHORT_ONE_MS = 60


@pytest.mark.parametrize("variant", ALL)
def test_one_delivery_after_another_charges_once(invoice: Open, variant: str) -> None:
    bill = invoice(variant)
    assert bill.run("A")[0] == 0
    assert bill.run("B")[0] == 0
    assert bill.charged_by() == ["A"]


@pytest.mark.parametrize("variant", ALL)
def test_two_at_once_charge_once_though_the_charge_outlasts_the_lease(invoice: Open, variant: str) -> None:
    bill = invoice(variant)
    bill.rule(before_commit_ms=int(2.5 * LEASE_MS))
    first = bill.deliver("A")
    bill.wait_for("charge-arrived", "A")
    second = bill.deliver("B")
    assert first.end()[0] == 0
    assert second.end()[0] == 0
    assert bill.charged_by() == ["A"]


@pytest.mark.parametrize("variant", ALL)
def test_a_refused_invoice_is_free_for_the_next_delivery(invoice: Open, variant: str) -> None:
    bill = invoice(variant)
    bill.rule(fail="decline")
    status, said = bill.run("A")
    assert (status, [event["code"] for event in said if event["event"] == "refused"]) == (0, ["card_declined"])
    bill.lift()
    status, said = bill.run("C")
    assert (status, [event for event in said if event["event"] == "recovered"]) == (0, [])
    assert bill.charged_by() == ["C"]


@pytest.mark.parametrize("variant", ADVISORY)
def test_whoever_gets_no_advisory_lock_in_time_gives_up(invoice: Open, variant: str) -> None:
    bill = invoice(variant, lease_ms=EIGHT_LEASES_OF_A_SHORT_ONE_MS)
    with psycopg.connect(bill.servers.postgres.url(bill.database)) as holder:
        holder.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [bill.customer])
        assert bill.run("A")[0] == 75
    assert bill.charged_by() == []


@pytest.mark.parametrize("variant", RESERVING)
def test_whoever_gets_no_redis_lock_in_time_gives_up(invoice: Open, variant: str) -> None:
    bill = invoice(variant, lease_ms=EIGHT_LEASES_OF_A_SHORT_ONE_MS)
    with redis.Redis.from_url(bill.redis_url) as holder:
        holder.set(f"lock:{bill.customer}", "somebody else")
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


def test_an_intent_whose_worker_died_before_the_charge_is_voided_and_reserved_anew(invoice: Open) -> None:
    bill = invoice("reserve_confirm")
    bill.rule(fail="hold-before-commit", who="A")
    worker = bill.deliver("A")
    bill.wait_for("charge-arrived", "A")
    worker.crash()
    status, said = bill.run("C")
    assert status == 0
    assert [event["event"] for event in said] == ["recovered", "reserved"]
    bill.lift()  # only now the dead worker's request goes on, and is refused
    bill.wait_for("charge-refused", "A")
    assert bill.charged_by() == ["C"]


def test_an_intent_whose_worker_died_after_the_charge_is_confirmed(invoice: Open) -> None:
    bill = invoice("reserve_confirm")
    bill.rule(fail="hold-after-commit")
    worker = bill.deliver("A")
    bill.wait_for("charge-committed", "A")
    worker.crash()
    bill.lift()
    status, said = bill.run("C")
    assert (status, said[0]["event"], said[-1]["event"]) == (0, "recovered", "already-paid")
    assert bill.run("C") == (0, [{"event": "already-paid"}])
    assert bill.charged_by() == ["A"]


@pytest.mark.parametrize("fail", ["error-before-commit", "error-after-commit"])
def test_a_charge_without_an_answer_is_settled_by_the_next_delivery(invoice: Open, fail: str) -> None:
    bill = invoice("reserve_confirm")
    bill.rule(fail=fail, times=1)
    assert bill.run("A")[0] not in (0, 75)
    assert bill.run("C")[0] == 0
    assert len(bill.charged_by()) == 1


def test_an_intent_younger_than_three_leases_is_left_alone(invoice: Open) -> None:
    bill = invoice("reserve_confirm", lease_ms=4 * LEASE_MS)
    bill.rule(fail="hold-before-commit", who="A")
    first = bill.deliver("A")
    bill.wait_for("charge-arrived", "A")
    second = bill.deliver("B")
    with psycopg.connect(bill.servers.postgres.url(bill.database), autocommit=True) as watch:
        until(lambda: polls(watch, bill.database) >= 1)
        bill.lift()
    assert first.end()[0] == 0
    assert second.end() == (0, [{"event": "already-paid"}])
    assert [entry["what"] for entry in bill.account()["log"]].count("intent-voided") == 0
    assert bill.charged_by() == ["A"]


def polls(watch: psycopg.Connection[tuple[int]], database: str) -> int:
    """The sessions that have asked for an intent and were told to wait."""
    row = watch.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = %s AND pid <> pg_backend_pid() AND state = 'idle' AND query LIKE '%%lockproof_intents%%'",
        [database],
    ).fetchone()
    return 0 if row is None else row[0]


def test_a_charge_slower_than_three_leases_is_voided_and_its_worker_told_no(invoice: Open) -> None:
    bill = invoice("reserve_confirm")
    bill.rule(before_commit_ms=6 * LEASE_MS, who="A")
    first = bill.deliver("A")
    bill.wait_for("charge-arrived", "A")
    second = bill.deliver("B")
    status, said = first.end()
    assert (status, said[-1]) == (0, {"event": "refused", "code": "intent_voided"})
    assert second.end()[0] == 0
    assert bill.charged_by() == ["B"]


def test_of_several_who_recover_one_intent_one_charges(invoice: Open) -> None:
    bill = invoice("reserve_confirm")
    bill.rule(fail="hold-before-commit", who="A")
    bill.deliver("A")
    bill.wait_for("charge-arrived", "A")
    bill.workers[0].crash()
    others = [bill.deliver(who) for who in "BCBCBC"]
    assert [worker.end()[0] for worker in others] == [0] * 6
    bill.lift()
    bill.wait_for("charge-refused", "A")
    assert len(bill.charged_by()) == 1


def test_an_intent_that_turns_out_charged_is_confirmed_and_not_rolled_back(invoice: Open) -> None:
    """Something between worker and processor sent the request twice, and the worker sees the second's answer."""
    bill = invoice("reserve_confirm")
    bill.rule(fail="hold-before-commit", who="A")
    worker = bill.deliver("A")
    bill.wait_for("charge-arrived", "A")
    assert send(bill, "B", bill.account()["log"][0]["intent"]).status == 201
    bill.lift()
    assert worker.end()[0] == 0
    assert bill.run("C") == (0, [{"event": "already-paid"}])
    assert bill.charged_by() == ["B"]


def test_nothing_is_ever_charged_under_an_intent_that_was_refused(invoice: Open) -> None:
    """Sent twice as before; this time the worker sees a refusal while the other one is still on its way."""
    bill = invoice("reserve_confirm")
    bill.rule(fail="decline", who="A")
    assert bill.run("A")[0] == 0
    assert send(bill, "B", bill.account()["log"][0]["intent"]).json()["error"]["code"] == "intent_voided"
    assert bill.run("C")[0] == 0
    assert bill.charged_by() == ["C"]


def send(bill: Invoice, who: str, intent: str) -> urllib3.BaseHTTPResponse:
    """Asks for the charge under somebody's intent."""
    order = {"customer": bill.customer, "invoice": bill.name, "amount": 4200, "currency": "EUR", "intent": intent}
    return urllib3.request("POST", f"{bill.servers.payment[who]}/v1/charges", json=order)


def test_no_session_is_held_over_the_charge(invoice: Open) -> None:
    bill = invoice("reserve_confirm")
    bill.rule(fail="hold-before-commit")
    worker = bill.deliver("A")
    bill.wait_for("charge-arrived", "A")
    until(lambda: bill.call(bill.servers.postgres.sessions(bill.database)) == [])
    bill.lift()
    assert worker.end()[0] == 0


def test_hole_a_naive_intent_whose_worker_died_leaves_the_invoice_uncharged_for_ever(invoice: Open) -> None:
    bill = invoice("reserve_confirm_naive")
    bill.rule(fail="error-before-commit", who="A")
    assert bill.run("A")[0] != 0
    for _ in range(2):
        status, said = bill.run("C")
        assert (status, said[0]["event"]) == (0, "skipped")
    assert bill.charged_by() == []


def test_hole_a_naive_intent_written_after_the_lease_is_written_twice(
    invoice: Open, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bill, here = invoice("reserve_confirm_naive"), os.getpid()

    class HeldUp(redis.Redis):
        """Between its reading and its writing passes a lease, in which another worker does all of its work."""

        def get(self, name: Any) -> Any:
            found = super().get(name)
            if os.getpid() == here:
                self.delete(f"lock:{bill.customer}")
                assert bill.run("B")[0] == 0
            return found

    monkeypatch.setattr(reserve_confirm_naive, "connect", lambda job: HeldUp.from_url(job.redis_url))
    reserve_confirm_naive.run(bill.job("A"))
    assert '"reserved"' in capsys.readouterr().out
    assert bill.charged_by() == ["B", "A"]


def test_without_a_database_the_variants_say_so() -> None:
    job = Job("redis://127.0.0.1:1", "http://127.0.0.1:1", None, "c", "i", 1, "EUR", 100, "A")
    for variant in (pg_advisory, pg_advisory_xact, reserve_confirm):
        with pytest.raises(ValueError, match="DATABASE_URL"):
            variant.run(job)


def test_both_advisory_variants_mean_the_same_table() -> None:
    assert pg_advisory.SCHEMA == pg_advisory_xact.SCHEMA
    assert pg_advisory.SCHEMA in variants_schema()
