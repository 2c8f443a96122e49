"""One HTTP connection: uvicorn's, with three things mended."""

from __future__ import annotations

import json
from typing import Any

import httptools
from starlette.types import Receive, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fakes.processor.errors import invalid


class Connection(HttpToolsProtocol):
    """Requests know their connection; bytes that are no HTTP are answered as every error is; and a request that offers
    an upgrade keeps its body.

    The last is for Java's HttpClient, which offers h2c with the first request on every connection. httptools takes
    what follows the head of such a request for another protocol and leaves it to the caller; uvicorn drops it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._body_left = 0  # bytes of a body that the parser does not see

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["transport"] = self.transport

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            self._body_left = int(dict(self.headers).get(b"content-length", 0))
        if not self._body_left:
            super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        while data:
            if self._body_left:
                body, data = data[: self._body_left], data[self._body_left :]
                self._body_left -= len(body)
                self.on_body(body)
                if not self._body_left:
                    super().on_message_complete()
                continue
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
            except httptools.HttpParserError:
                self.send_400_response("not an HTTP/1.1 request")
                return

    def send_400_response(self, msg: str) -> None:
        body = json.dumps(invalid("request", msg).to_json()).encode()
        head = (
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n" % len(body)
        )
        self.transport.write(head + body)
        self.transport.close()


async def close_connection(scope: Scope, receive: Receive) -> None:
    """Ends a request without an answer. Returns when uvicorn knows: it would answer 500 in our place until then."""
    scope["state"]["transport"].close()
    while (await receive())["type"] != "http.disconnect":
        pass
