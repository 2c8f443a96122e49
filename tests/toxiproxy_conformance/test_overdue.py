"""A request that takes longer than the server allows: 503, while what it began goes on. Toxiproxy allows 25 s."""

from __future__ import annotations

import asyncio
from typing import Any

from fakes.toxiproxy.api import REQUEST_TIMEOUT_S, Api


async def call(api: Api, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    """Status and body of the application's answer, without a server between."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }
    await api.app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


async def overdue_then_finished() -> None:
    api = Api(request_timeout_s=0.1)
    new = b'{"name":"web","listen":"127.0.0.1:0","upstream":"127.0.0.1:1","enabled":false}'
    assert (await call(api, "POST", "/proxies", new))[0] == 201
    toxics = api.proxies.get("web").toxics
    async with toxics._lock:
        assert await call(api, "POST", "/proxies/web/toxics", b'{"type":"latency"}') == (503, b"")
        assert await call(api, "GET", "/proxies") == (503, b""), "the list did not wait for the change"
    async with asyncio.timeout(10):
        while await toxics.to_json() == "[]":
            await asyncio.sleep(0)
    status, body = await call(api, "GET", "/proxies/web/toxics/latency_downstream")
    assert status == 200
    assert b'"type":"latency"' in body


def test_an_overdue_request_is_503_and_its_work_goes_on() -> None:
    assert REQUEST_TIMEOUT_S == 25
    asyncio.run(overdue_then_finished())
