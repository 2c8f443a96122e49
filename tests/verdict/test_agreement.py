"""The harness's verdict and the plain judge say the same of every story, whatever is wrong with it."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from model import judge as plain

from harness.verdict import judge

from . import FIXED
from .stories import FLAWS, HARMLESS, flawed, stories
from .story import Story, as_events, as_plain


def assert_both_say_the_same(story: Story) -> str:
    mine, theirs = judge(as_events(story)), plain.judge(as_plain(story))
    assert mine.kind == theirs.verdict, f"{mine.reason!r}; the plain judge: {theirs.reason!r}"
    return mine.kind


@settings(FIXED, max_examples=120)
@given(stories())
def test_both_judges_agree_on_a_story_that_is_whole(story: Story) -> None:
    assert_both_say_the_same(story)


@settings(FIXED, max_examples=150)
@given(flawed())
def test_both_judges_agree_on_a_story_that_is_not(story: Story) -> None:
    assert_both_say_the_same(story)


@cache
def conclusive() -> list[Story]:
    """Stories that come to a verdict: the same ones in every run."""
    found: list[Story] = []

    @settings(FIXED, max_examples=160, phases=[Phase.generate])
    @given(stories())
    def collect(story: Story) -> None:
        if assert_both_say_the_same(story) != plain.INCONCLUSIVE:
            found.append(story)

    collect()
    return found


def test_the_stories_come_to_every_verdict() -> None:
    """Agreement on inconclusive alone would show nothing."""
    kinds = Counter(judge(as_events(story)).kind for story in conclusive())
    assert set(kinds) == {plain.EXACTLY_ONE, plain.DOUBLE_CHARGE, plain.NO_CHARGE}
    assert min(kinds.values()) >= 5, kinds


@pytest.mark.parametrize("name", sorted(FLAWS))
def test_no_flaw_leaves_a_verdict_as_it_was_but_two_charges(name: str) -> None:
    """It becomes inconclusive; of two charges it never makes fewer than two, and of none that one was made."""
    spoilt = 0

    @settings(FIXED, max_examples=40, phases=[Phase.generate])
    @given(st.sampled_from(conclusive()), st.data())
    def spoil(story: Story, data: Any) -> None:
        nonlocal spoilt
        before, after = judge(as_events(story)).kind, FLAWS[name](story, data.draw)
        if after == story:
            return
        spoilt += 1
        allowed = {plain.INCONCLUSIVE}
        if before == plain.DOUBLE_CHARGE or name in HARMLESS or (before, name) == (plain.NO_CHARGE, HUNG):
            allowed.add(before)
        assert assert_both_say_the_same(after) in allowed

    spoil()
    assert spoilt >= 3


HUNG = "a worker that hung"
"""Nobody charges while a worker hangs, and nobody after it: that is never charged all the same."""
