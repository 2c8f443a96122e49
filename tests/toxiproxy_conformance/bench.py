"""Proxies and connections for the tests that measure bytes and time, and the loop that runs those tests side by side.

Each of these tests mostly waits. So they are coroutines, and the first that pytest comes to starts all that were
collected for the same server; each test then reports its own result.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from .servers import Answer, Server
from .wires import Upstream, Wire, dial

_AT_ONCE = 12
"""Tests in progress at the same time: more would make each other late on two cores."""

_numbers = itertools.count(1)


class Link:
    """A proxy with an upstream of the test's own."""

    def __init__(self, bench: Bench, name: str, listen: str, upstream: Upstream) -> None:
        self._bench = bench
        self.name = name
        self.listen = listen
        self.upstream = upstream
        self.wires: list[Wire] = []
        self._opening = asyncio.Lock()

    async def open(self, receive_buffer: int | None = None) -> tuple[Wire, Wire]:
        """A connection: the client's end and the upstream's end."""
        async with self._opening:
            near = await dial(self.listen, receive_buffer)
            self.wires.append(near)
            far = await self.upstream.accept()
            self.wires.append(far)
            return near, far

    async def open_towards(self, stream: str) -> tuple[Wire, Wire]:
        """A connection: the end that sends and the end that receives in this direction."""
        near, far = await self.open()
        return (near, far) if stream == "upstream" else (far, near)

    async def call(self, method: str, path: str = "", body: object = None) -> Answer:
        return await self._bench.call(method, f"/proxies/{self.name}{path}", body)

    async def add(self, type_name: str, stream: str = "downstream", toxicity: float = 1.0, **attributes: int) -> None:
        """Sets a toxic called what it is, and reads back that it is set."""
        given = {"name": type_name, "type": type_name, "stream": stream, "toxicity": toxicity, "attributes": attributes}
        answer = await self.call("POST", "/toxics", given)
        assert answer.status == 200, answer
        assert (await self.call("GET", f"/toxics/{type_name}")).json["attributes"] == attributes

    async def update(self, type_name: str, toxicity: float | None = None, **attributes: int) -> None:
        changes: dict[str, object] = {"attributes": attributes}
        if toxicity is not None:
            changes["toxicity"] = toxicity
        answer = await self.call("PATCH", f"/toxics/{type_name}", changes)
        assert answer.status == 200, answer

    async def remove(self, type_name: str) -> None:
        answer = await self.call("DELETE", f"/toxics/{type_name}")
        assert answer.status == 204, answer

    async def enable(self, enabled: bool) -> None:
        answer = await self.call("PATCH", "", {"enabled": enabled})
        assert (answer.status, answer.json["enabled"]) == (200, enabled), answer


class Bench:
    def __init__(self, server: Server) -> None:
        self.server = server
        self._calls = ThreadPoolExecutor(2 * _AT_ONCE, thread_name_prefix="toxiproxy-call")
        self._results: dict[str, Future[None]] | None = None
        self._thread: threading.Thread | None = None

    async def call(self, method: str, path: str, body: object = None) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._calls, self.server.call, method, path, body)

    @asynccontextmanager
    async def link(self, **more: object) -> AsyncIterator[Link]:
        """A new proxy; it and everything opened through it is gone afterwards."""
        name = f"bench-{next(_numbers)}"
        async with AsyncExitStack() as undo:
            upstream = Upstream()
            undo.callback(upstream.close)
            given = {"name": name, "listen": "127.0.0.1:0", "upstream": upstream.address, **more}
            created = await self.call("POST", "/proxies", given)
            assert created.status == 201, created
            undo.push_async_callback(self.call, "DELETE", f"/proxies/{name}")
            link = Link(self, name, created.json["listen"], upstream)
            try:
                yield link
            finally:
                for wire in link.wires:
                    wire.close()

    def result_of(self, item: pytest.Function) -> None:
        """Waits for this test, and raises what it raised."""
        if self._results is None:
            functions = [each for each in item.session.items if isinstance(each, pytest.Function)]
            mine = [each for each in functions if is_coroutine(each) and self._serves(each)]
            self._results = {each.nodeid: Future() for each in mine}
            coroutines = {each.nodeid: _bound(each, self) for each in mine}
            self._thread = threading.Thread(target=lambda: asyncio.run(self._run(coroutines)), name="toxiproxy-bench")
            self._thread.start()
        self._results[item.nodeid].result()

    def close(self) -> None:
        if self._thread:
            self._thread.join()
        self._calls.shutdown()

    def _serves(self, item: pytest.Function) -> bool:
        return item.callspec.params.get("kind") == self.server.kind

    async def _run(self, coroutines: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        turn = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(*(self._settle(turn, nodeid, test) for nodeid, test in coroutines.items()))

    async def _settle(self, turn: asyncio.Semaphore, nodeid: str, test: Callable[[], Awaitable[None]]) -> None:
        assert self._results is not None
        result = self._results[nodeid]
        async with turn:
            (outcome,) = await asyncio.gather(test(), return_exceptions=True)
        if isinstance(outcome, BaseException):
            result.set_exception(outcome)
        else:
            result.set_result(None)


def is_coroutine(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and asyncio.iscoroutinefunction(item.obj)


def _bound(item: pytest.Function, bench: Bench) -> Callable[[], Awaitable[None]]:
    """The test with its parameters; those of fixtures are left out."""
    wanted: dict[str, Any] = {name: value for name, value in item.callspec.params.items() if name != "kind"}
    return lambda: item.obj(bench=bench, **wanted)
