"""The HTTP interface (api.go), as an ASGI application: paths, status codes, headers, and bodies to the byte."""

from __future__ import annotations

import asyncio
import posixpath
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import quote, unquote_to_bytes

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fakes.toxiproxy import VERSION
from fakes.toxiproxy.decode import dumps
from fakes.toxiproxy.errors import ApiError, bad_request_body
from fakes.toxiproxy.proxy_collection import ProxyCollection
from fakes.toxiproxy.syntax import NotJson, Value, read_value

REQUEST_TIMEOUT_S = 25.0
"""After so long a request is answered 503, with an empty body; what it began goes on."""

_Handler = Callable[[Request], Awaitable[Response]]


class Api:
    """Handlers over one collection of proxies; app is what a server serves."""

    def __init__(self, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self.proxies = ProxyCollection()
        self._request_timeout_s = request_timeout_s
        self._overdue: set[asyncio.Future[Response]] = set()
        routes = [
            self._route("/reset", "POST", self.reset),
            self._route("/proxies", "GET", self.proxy_index),
            self._route("/proxies", "POST", self.proxy_create),
            self._route("/populate", "POST", self.populate),
            self._route("/proxies/{proxy}", "GET", self.proxy_show),
            self._route("/proxies/{proxy}", "POST PATCH", self.proxy_update),
            self._route("/proxies/{proxy}", "DELETE", self.proxy_delete),
            self._route("/proxies/{proxy}/toxics", "GET", self.toxic_index),
            self._route("/proxies/{proxy}/toxics", "POST", self.toxic_create),
            self._route("/proxies/{proxy}/toxics/{toxic}", "GET", self.toxic_show),
            self._route("/proxies/{proxy}/toxics/{toxic}", "POST PATCH", self.toxic_update),
            self._route("/proxies/{proxy}/toxics/{toxic}", "DELETE", self.toxic_delete),
            self._route("/version", "GET", self.version),
        ]
        application = Starlette(routes=routes, exception_handlers={404: _no_such_path, 405: _no_such_method})
        application.router.redirect_slashes = False
        self.app: ASGIApp = _CleanPaths(application)

    async def reset(self, _: Request) -> Response:
        await self.proxies.reset()
        return Response(status_code=204)

    async def proxy_index(self, _: Request) -> Response:
        return _json(await self.proxies.to_json())

    async def proxy_create(self, request: Request) -> Response:
        proxy = await self.proxies.create(_value(await _body(request)))
        return _json(await proxy.to_json(), 201)

    async def populate(self, request: Request) -> Response:
        try:
            populated = await self.proxies.populate(_value(await _body(request)))
        except ApiError as error:
            return _json(f'{{"error":{dumps(error.text)},"status":{error.status},"proxies":null}}', error.status)
        return _json(await populated.to_json(), populated.error.status if populated.error else 201)

    async def proxy_show(self, request: Request) -> Response:
        return _json(await self.proxies.get(request.path_params["proxy"]).to_json())

    async def proxy_update(self, request: Request) -> Response:
        body = await _body(request)
        proxy = self.proxies.get(request.path_params["proxy"])
        await self.proxies.update(proxy, _value(body))
        return _json(await proxy.to_json())

    async def proxy_delete(self, request: Request) -> Response:
        await self.proxies.remove(request.path_params["proxy"])
        return Response(status_code=204)

    async def toxic_index(self, request: Request) -> Response:
        return _json(await self.proxies.get(request.path_params["proxy"]).toxics.to_json())

    async def toxic_create(self, request: Request) -> Response:
        body = await _body(request)
        toxics = self.proxies.get(request.path_params["proxy"]).toxics
        return _json((await toxics.add(_value(body))).to_json())

    async def toxic_show(self, request: Request) -> Response:
        toxics = self.proxies.get(request.path_params["proxy"]).toxics
        return _json((await toxics.get(request.path_params["toxic"])).to_json())

    async def toxic_update(self, request: Request) -> Response:
        body = await _body(request)
        toxics = self.proxies.get(request.path_params["proxy"]).toxics
        return _json((await toxics.update(request.path_params["toxic"], lambda: _value(body))).to_json())

    async def toxic_delete(self, request: Request) -> Response:
        await self.proxies.get(request.path_params["proxy"]).toxics.remove(request.path_params["toxic"])
        return Response(status_code=204)

    async def version(self, _: Request) -> Response:
        return Response(f'{{"version": "{VERSION}"}}\n', media_type="application/json;charset=utf-8")

    def _route(self, path: str, methods: str, handler: _Handler) -> Route:
        async def guarded(request: Request) -> Response:
            if request.headers.get("user-agent", "").startswith("Mozilla/"):
                response = _error("User agent not allowed", 403)
            else:
                response = await self._in_time(self._answer(handler, request))
            response.headers["X-Toxiproxy-Request-Id"] = secrets.token_hex(10)
            return response

        route = Route(path, guarded, methods=methods.split(), name=handler.__name__)
        assert route.methods is not None
        route.methods -= {"HEAD"}  # Starlette adds it to GET; Toxiproxy's router does not.
        return route

    async def _answer(self, handler: _Handler, request: Request) -> Response:
        try:
            return await handler(request)
        except ApiError as error:
            return _error(f'{{"error":{dumps(error.text)},"status":{error.status}}}', error.status)

    async def _in_time(self, answer: Awaitable[Response]) -> Response:
        task = asyncio.ensure_future(answer)
        done, _ = await asyncio.wait({task}, timeout=self._request_timeout_s)
        if done:
            return task.result()
        self._overdue.add(task)
        task.add_done_callback(self._overdue.discard)
        return Response(status_code=503)


class _CleanPaths:
    """Answers a path with empty, "." or ".." segments with a redirect to the clean one, as Toxiproxy's router does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = unquote_to_bytes(scope["raw_path"])
        clean = posixpath.normpath(b"/" + path.lstrip(b"/"))
        if path.endswith(b"/") and clean != b"/":
            clean += b"/"
        if clean == path:
            await self._app(scope, receive, send)
            return
        query = scope["query_string"].decode("latin-1")
        location = quote(clean, safe="/$&+,;=:@") + (f"?{query}" if query else "")
        await Response(status_code=301, headers={"Location": location})(scope, receive, send)


async def _body(request: Request) -> bytes:
    """What has come of it when the client goes away half-way: JSON that ends too soon."""
    chunks = []
    try:
        async for chunk in request.stream():
            chunks.append(chunk)
    except ClientDisconnect:
        pass
    return b"".join(chunks)


def _value(body: bytes) -> Value:
    try:
        return read_value(body)
    except NotJson as error:
        raise bad_request_body(str(error)) from None


def _json(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="application/json")


def _error(text: str, status: int) -> Response:
    """As Go's http.Error: plain text whatever it is, and a line feed after it."""
    return PlainTextResponse(f"{text}\n", status, headers={"X-Content-Type-Options": "nosniff"})


async def _no_such_path(_: Request, __: Exception) -> Response:
    return _error("404 page not found", 404)


async def _no_such_method(_: Request, __: HTTPException | Exception) -> Response:
    return Response(status_code=405)
