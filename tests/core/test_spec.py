"""A replay token is one grammar for every scenario, needs no quoting, and says what is wrong with it."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.spec import BadToken, Spec, Token

CHARGE = "processor.post-v1-charges.1.request"
NAMED = [
    (f"naive-ttl:freeze@{CHARGE}", Token("naive-ttl", "freeze", CHARGE)),
    ("fencing:slow-charge@request-wire", Token("fencing", "slow-charge", "request-wire")),
    ("fencing:slow-charge@request-wire:run=3:seed=7", Token("fencing", "slow-charge", "request-wire", 3, 7)),
    ("fencing:slow-charge@request-wire:run=3", Token("fencing", "slow-charge", "request-wire", 3)),
    (
        "node-worker.mjs:crash@redis.eval-c3f8.1.reply:seed=0",
        Token("node-worker.mjs", "crash", "redis.eval-c3f8.1.reply", 1, 0),
    ),
    ("  naive-ttl:none@none\n", Token("naive-ttl", "none", "none")),
]


@pytest.mark.parametrize(("text", "token"), NAMED)
def test_a_token_is_taken_apart(text: str, token: Token) -> None:
    assert Token.parse(text) == token


@pytest.mark.parametrize(
    "text",
    [
        "", "naive-ttl", "naive-ttl:freeze", "naive-ttl@place", ":freeze@place", "a:b@", "A:b@c", "a:b@c:run=",
        "a:b@c:run=x", "a:b@c:seed=1:run=2", "a:b@c:run=-1", "a:b@c d", "a:b@c;rm", "a:b@c:run=9999999999",
    ],
)  # fmt: skip
def test_what_is_no_token_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadToken, match="One looks like naive-ttl:freeze@"):
        Token.parse(text)


names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
places = st.one_of(
    names, st.builds("{}.{}.{}.{}".format, names, names, st.integers(1, 99), st.sampled_from(("request", "reply")))
)


@given(names, names, places, st.integers(1, 10_000), st.integers(0, 2**63 - 1))
def test_the_token_of_an_experiment_gives_it_back_and_needs_no_quoting(
    subject: str, fault: str, place: str, run: int, seed: int
) -> None:
    spec = Spec("scenario", subject, fault, place, 1000, run=run, seed=seed)
    assert shlex.quote(spec.token) == spec.token
    token = Token.parse(spec.token)
    assert (token.subject, token.fault, token.place, token.run) == (subject, fault, place, run)
    assert token.seed == (seed if run > 1 else None)


def test_the_id_names_the_fault_only_where_the_scenario_does_not() -> None:
    assert (
        Spec("slow-charge", "naive-ttl", "slow-charge", "before-commit", 1000).id
        == "slow-charge/naive-ttl/before-commit"
    )
    assert (
        Spec("sweep", "naive-ttl", "freeze", "redis.get.1.reply", 1000).id == "sweep/naive-ttl/freeze@redis.get.1.reply"
    )
    assert (
        Spec("freeze", "naive-ttl", "freeze", "charge-reply", 1000, run=2).id == "freeze/naive-ttl/charge-reply/run-2"
    )
