"""The four variants as processes of their own: what all of them guarantee."""

from __future__ import annotations

import pytest

from harness.subject import Job
from harness.variants import pg_advisory, pg_advisory_xact, reserve_confirm
from postgres.shop import LEASE_MS, Open

ALL = ("pg_advisory", "pg_advisory_xact", "reserve_confirm", "reserve_confirm_naive")


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


def test_without_a_database_the_variants_say_so() -> None:
    job = Job("redis://127.0.0.1:1", "http://127.0.0.1:1", None, "c", "i", 1, "EUR", 100, "A")
    for variant in (pg_advisory, pg_advisory_xact, reserve_confirm):
        with pytest.raises(ValueError, match="DATABASE_URL"):
            variant.run(job)
