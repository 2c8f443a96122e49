"""The two variants that reserve, then confirm: what each says it guarantees, and each hole it says it has."""

from __future__ import annotations

import os
from typing import Any

import psycopg
import pytest
import redis
import urllib3

from harness.variants import reserve_confirm_naive
from postgres.shop import EIGHT_LEASES_OF_A_SHORT_ONE_MS, LEASE_MS, Invoice, Open, until

RESERVING = ("reserve_confirm", "reserve_confirm_naive")


@pytest.mark.parametrize("variant", RESERVING)
def test_whoever_gets_no_redis_lock_in_time_gives_up(invoice: Open, variant: str) -> None:
    bill = invoice(variant, lease_ms=EIGHT_LEASES_OF_A_SHORT_ONE_MS)
    with redis.Redis.from_url(bill.redis_url) as holder:
        holder.set(f"lock:{bill.customer}", "somebody else")
        assert bill.run("A")[0] == 75
    assert bill.charged_by() == []


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
