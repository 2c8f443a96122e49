"""What the payment and the control address share: bodies in, JSON out, and errors in one form."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope

from fakes.processor import fields
from fakes.processor.errors import Refusal, ledger_unavailable

LARGEST_BODY = 64 * 1024
"""Bytes of a request body, with Content-Length or chunked."""


class Json(Response):
    """ASCII only, so that no character of a caller's can fail to be encoded."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


def application(routes: Sequence[BaseRoute]) -> Starlette:
    """A Starlette application whose every error is {"error": {...}}."""
    app = Starlette(
        routes=routes,
        exception_handlers={
            Refusal: _refused,
            HTTPException: _no_such_route,
            sqlite3.Error: _ledger_failed,
            ClientDisconnect: _nobody_there,
        },
    )
    app.router.redirect_slashes = False  # a redirect would make a POST arrive twice, or as a GET
    return app


async def json_body(scope: Scope, receive: Receive) -> dict[str, Any]:
    """The JSON object a request carries. Raises Refusal (415, 413, 400), or ClientDisconnect if it never came whole."""
    fields.require_json(scope["headers"])
    return fields.json_object(await _body(scope, receive))


async def _body(scope: Scope, receive: Receive) -> bytes:
    too_large = Refusal(413, "payload_too_large", f"body: larger than {LARGEST_BODY} bytes", "body")
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > LARGEST_BODY:  # the parser has let digits only through
            raise too_large
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        body = body + chunk if body else chunk
        if len(body) > LARGEST_BODY:
            raise too_large
        if not message.get("more_body", False):
            return body


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return Json(error.to_json(), error.status)


async def _no_such_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes: Mapping[int, str] = {404: "not_found", 405: "method_not_allowed"}
    message = f"no {request.method} here" if error.status_code == 405 else "no such path"
    refusal = Refusal(error.status_code, codes.get(error.status_code, "invalid_request"), message)
    return Json(refusal.to_json(), error.status_code, headers=error.headers)


async def _ledger_failed(_request: Request, error: Exception) -> Response:
    refusal = ledger_unavailable(error)
    return Json(refusal.to_json(), refusal.status)


async def _nobody_there(_request: Request, _error: Exception) -> Response:
    """The caller left before its request was whole: nothing has happened, and the answer goes nowhere."""
    return Response(status_code=400)
