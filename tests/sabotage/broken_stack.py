"""A server of the whole stack that breaks under an experiment: how, and which words have to name the cause."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from harness.bench import Bench
from harness.stack.local import LocalStack
from harness.stack.redis import LocalRedis
from sabotage.workshop import soon


async def _struck(bench: Bench, then: Callable[[], Awaitable[None]]) -> None:
    await bench.struck.wait()
    await then()


_background: set[asyncio.Future[None]] = set()


def when_struck(then: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[Bench], None]:
    def breaks(bench: Bench) -> None:
        _background.add(asyncio.ensure_future(_struck(bench, lambda: then(bench))))

    return breaks


async def garble_ledger(bench: Bench) -> None:
    for name in ("ledger.sqlite", "ledger.sqlite-wal"):
        path = bench.stack.directory / name
        if path.exists():
            path.write_bytes(b"\xde\xad" * (path.stat().st_size // 2))


async def restart_processor(bench: Bench) -> None:
    """kill -9, and a supervisor that starts it again on the same ports."""
    stack = bench.stack
    assert isinstance(stack, LocalStack)
    old = stack._processes["processor"]
    old.kill()
    await old.wait()
    argv = [sys.executable, "-P", "-m", "fakes.processor", "--ledger", str(stack.directory / "ledger.sqlite")]
    for role, (host, port) in stack.processor.payment.items():
        argv += ["--payment", f"{role}={host}:{port}"]
    await stack._spawn("processor", [*argv, "--control", stack.processor.control.removeprefix("http://")])
    await soon(lambda: stack.log_of("processor").count('"boot"') > 1)


async def empty_redis(bench: Bench) -> None:
    """kill -9, and an empty one in its place."""
    redis = bench.stack.redis
    assert isinstance(redis, LocalRedis)
    await redis.restart()


async def deafen(bench: Bench) -> None:
    """A client wants to hear of expired keys, and has the server tell of nothing else."""
    await bench.stack.redis.client.config_set("notify-keyspace-events", "Ex")


STACK: dict[str, tuple[Callable[[Bench], Coroutine[Any, Any, None]], str]] = {
    "the ledger cannot be read": (garble_ledger, "control address answered 5"),
    "the processor dies and comes back": (restart_processor, "processor"),
    "Redis is replaced by an empty one": (empty_redis, "redis"),
    "Redis tells nobody what happens to keys": (deafen, "has set notify-keyspace-events to 'xE'"),
}
