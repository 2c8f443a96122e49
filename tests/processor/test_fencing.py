"""The mark of a customer: raised as a request arrives, compared again as it commits."""

from __future__ import annotations

from .bank import Customer


def test_a_lower_token_than_the_highest_seen_is_refused(customer: Customer) -> None:
    assert customer.charge(token=5).status == 201
    refused = customer.charge(token=4)
    assert (refused.status, refused.code, refused.param) == (409, "stale_fencing_token", "Fencing-Token")
    assert len(customer.charges()) == 1


def test_an_equal_token_a_higher_one_and_none_are_accepted(customer: Customer) -> None:
    assert [customer.charge(token=token).status for token in (5, 5, 6, None)] == [201] * 4
    assert customer.account()["mark"] == 6


def test_zero_is_a_token_and_the_largest_is_kept_exactly(customer: Customer) -> None:
    assert customer.account()["mark"] is None
    assert customer.charge(token=0).status == 201
    assert customer.account()["mark"] == 0
    assert customer.charge(token=2**63 - 1).body["fencing_token"] == 2**63 - 1
    assert customer.account()["mark"] == 2**63 - 1


def test_the_mark_is_raised_when_a_charge_arrives_not_when_it_commits(customer: Customer) -> None:
    customer.rule(fail="hold-before-commit", who="B")
    held = customer.charging("B", token=2)
    assert customer.account()["mark"] == 2
    assert customer.charge("A", token=1).code == "stale_fencing_token"
    customer.no_rules()
    assert held.result().status == 201


def test_a_token_that_became_stale_while_the_charge_was_under_way_is_refused_at_the_commit(customer: Customer) -> None:
    customer.rule(fail="hold-before-commit", who="A")
    held = customer.charging("A", token=1)
    assert customer.charge("B", token=2).status == 201
    customer.no_rules()
    assert held.result().code == "stale_fencing_token"
    assert [charge["who"] for charge in customer.charges()] == ["B"]


def test_an_order_only_fence_accepts_both_when_the_old_token_commits_first(customer: Customer) -> None:
    """Why the fencing variant has holes: nothing carrying 2 had arrived when 1 committed."""
    assert customer.charge("A", token=1).status == 201
    assert customer.charge("B", token=2).status == 201
    assert len(customer.charges()) == 2


def test_a_read_with_a_token_fences_off_a_charge_that_is_under_way(customer: Customer) -> None:
    customer.rule(fail="hold-before-commit", who="A")
    held = customer.charging("A", token=1)
    assert customer.read("B", token=2).body == {"data": []}
    assert customer.account()["mark"] == 2
    customer.no_rules()
    assert held.result().code == "stale_fencing_token"
    assert customer.charges() == []


def test_a_read_with_a_stale_token_is_refused(customer: Customer) -> None:
    customer.charge(token=2)
    refused = customer.read(token=1)
    assert (refused.status, refused.code) == (409, "stale_fencing_token")
    assert customer.story()[-1] == "A charges-read stale_fencing_token"
    assert customer.read(token=2).status == 200
    assert customer.read().status == 200


def test_a_charge_without_a_token_is_not_fenced(customer: Customer) -> None:
    customer.rule(fail="hold-before-commit", who="A")
    held = customer.charging("A")
    customer.charge("B", token=9)
    customer.no_rules()
    assert held.result().status == 201


def test_marks_belong_to_one_customer(customer: Customer) -> None:
    other = Customer(customer.bank)
    customer.charge(token=9)
    assert other.charge(token=1).status == 201
    other.forget()


def test_a_refused_charge_has_raised_the_mark_all_the_same(customer: Customer) -> None:
    """The token was seen: whatever else is wrong with the request, an older holder is out."""
    customer.rule(fail="rate-limit", times=1)
    assert customer.charge("B", token=2).status == 429
    customer.rule(fail="decline", times=1)
    assert customer.charge("B", token=3).status == 402
    assert customer.account()["mark"] == 3


def test_a_request_of_the_wrong_form_does_not_raise_the_mark(customer: Customer) -> None:
    assert customer.charge(token=5, amount=0).status == 400
    assert customer.account()["mark"] is None
    assert customer.events() == []
