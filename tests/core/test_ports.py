"""A port is looked for before it is bound; whoever takes it in between is not mistaken for a server of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import kernel
from harness.launcher import Keeper
from harness.stack import StackError, free_port, local, redis
from harness.stack.local import LocalStack
from harness.stack.redis import LocalRedis


def taken_first(port: int) -> Iterator[int]:
    yield port
    while True:
        yield free_port()


def test_a_port_that_another_redis_has_taken_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        keeper = await Keeper.launch()
        try:
            theirs = LocalRedis(keeper, keeper.directory / "theirs", databases=1, options=(), own=True)
            await theirs.start()
            ports = taken_first(theirs.port)
            monkeypatch.setattr(redis, "free_port", lambda: next(ports))
            ours = LocalRedis(keeper, keeper.directory / "ours", databases=1, options=(), own=True)
            await ours.start()
            assert ours.port != theirs.port
            assert ours.process is not None
            assert (await ours.info("server"))["process_id"] == str(ours.process.pid)
            monkeypatch.setattr(redis, "free_port", lambda: theirs.port)
            with pytest.raises(StackError, match="in use"):
                await LocalRedis(keeper, keeper.directory / "never", databases=1, options=(), own=True).start()
            assert (await theirs.info("server"))["process_id"] == str(theirs.process.pid), "theirs was left alone"  # type: ignore[union-attr]
            for server in (theirs, ours):
                await server.disconnect()
        finally:
            keeper.shut_down()

    asyncio.run(test())


def test_a_port_that_another_toxiproxy_has_taken_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def test() -> None:
        keeper = await Keeper.launch()
        try:
            theirs = LocalStack(keeper)
            await theirs._start_toxiproxy()
            ports = taken_first(theirs.toxiproxy.port)
            monkeypatch.setattr(local, "free_port", lambda: next(ports))
            ours = LocalStack(keeper)
            ours.directory = tmp_path
            await ours._start_toxiproxy()
            assert ours.toxiproxy.port != theirs.toxiproxy.port
            assert kernel.listens(ours._processes["toxiproxy"].pid, ours.toxiproxy.port)
            assert not kernel.listens(theirs._processes["toxiproxy"].pid, ours.toxiproxy.port)
            for stack in (theirs, ours):
                stack.toxiproxy.close()
        finally:
            keeper.shut_down()

    asyncio.run(test())
