"""Of two who ask for a lost lock B is first: A's renewal waits until B has had an answer about the lock."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.faults._b_first import BFirst
from harness.history import History
from harness.network.tap import Fate, Message

KEY = "lock:cus-1"
LEASE_S = 5.0


def message(side: str, label: str = "set", n: int = 1, key: str = KEY) -> Message:
    return Message("redis", label, n, side, f"*2 {key}".encode(), {}, cast(Any, None), 0)


class Night:
    """A bench as far as it matters here, with A's renewal on its way."""

    def __init__(self, lease_s: float = LEASE_S) -> None:
        self.link = SimpleNamespace(interceptor=None)
        self.bench = SimpleNamespace(
            link=lambda worker, link: self.link,
            lock=SimpleNamespace(key=KEY),
            on_message=[],
            history=History(),
            lifted=asyncio.Event(),
            lease_s=lease_s,
        )
        self.first = BFirst(cast(Any, self.bench))
        handler = self.link.interceptor(message("request", "eval-0a4b"))
        self.renewal = asyncio.ensure_future(handler(message("request", "eval-0a4b")))

    async def b(self, *messages: Message) -> None:
        for each in messages:
            for listener in self.bench.on_message:
                listener("B", each)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def _until_b_is_answered() -> None:
    night = Night()
    night.first.until_b_was_answered()
    await night.b(message("request", "hello", key=""), message("reply", "hello", key=""), message("request", n=2))
    assert not night.renewal.done()
    await night.b(message("reply", n=2, key=""))
    assert await asyncio.wait_for(night.renewal, 1) is Fate.DELIVER
    assert night.link.interceptor is None
    assert [event.what for event in night.bench.history] == ["held", "let-go"]


async def _replies_pass() -> None:
    night = Night()
    assert night.link.interceptor(message("reply")) is None
    night.first.end()
    assert await asyncio.wait_for(night.renewal, 1) is Fate.DELIVER


async def _lift() -> None:
    night = Night()
    night.first.until_b_was_answered()
    night.bench.lifted.set()
    assert await asyncio.wait_for(night.renewal, 1) is Fate.DELIVER


async def _a_lease() -> None:
    night = Night(lease_s=0.05)
    night.first.until_b_was_answered()
    assert await asyncio.wait_for(night.renewal, 5) is Fate.DELIVER
    assert night.link.interceptor is None


@pytest.mark.parametrize("story", [_until_b_is_answered, _replies_pass, _lift, _a_lease])
def test_a_waits_for_b_and_no_longer_than_it_must(story: Any) -> None:
    asyncio.run(story())
