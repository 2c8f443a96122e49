"""HTTP/1.1 messages on the wire, parsed by h11."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import h11

from harness.network.framing import Cutter, Frame, Framer, Unparsable, slug

_VERSION_SEGMENT = re.compile(r"v\d+$")
_WORD_SEGMENT = re.compile(r"[a-z][a-z_.-]*$", re.IGNORECASE)


def http_label(method: str, target: str) -> str:
    """post-v1-charges; path segments that are no words (ids) are left out: post-v1-intents-void."""
    path = target.split("?", 1)[0]
    if "://" in path:
        path = "/" + path.split("://", 1)[1].partition("/")[2]
    words = [s for s in path.split("/") if _VERSION_SEGMENT.match(s) or _WORD_SEGMENT.match(s)]
    return slug("-".join([method, *words]))


class HttpRequests(Cutter):
    """HTTP/1.1 requests, parsed by h11."""

    def __init__(self, methods: deque[str]) -> None:
        super().__init__()
        self._methods = methods

    def cut(self, buffer: bytearray) -> Frame | None:
        parsed = _h11_message(h11.Connection(h11.SERVER), buffer)
        if parsed is None:
            return None
        head, body, raw = parsed
        method, target = head.method.decode("ascii"), head.target.decode("ascii", "replace")
        self._methods.append(method)
        return Frame(
            http_label(method, target),
            raw,
            {
                "method": method,
                "target": target,
                "headers": {k.decode().lower(): v.decode("latin-1") for k, v in head.headers},
                "body": body,
            },
        )


class HttpReplies(Cutter):
    """HTTP/1.1 responses; methods are those of the requests still to be answered (a HEAD has no body)."""

    def __init__(self, methods: deque[str]) -> None:
        super().__init__()
        self._methods = methods

    def cut(self, buffer: bytearray) -> Frame | None:
        connection = h11.Connection(h11.CLIENT)
        method = self._methods[0] if self._methods else "GET"
        connection.send(h11.Request(method=method, target="/", headers=[("host", "tap")]))
        connection.send(h11.EndOfMessage())
        parsed = _h11_message(connection, buffer)
        if parsed is None:
            return None
        head, body, raw = parsed
        if self._methods:
            self._methods.popleft()
        return Frame("", raw, {"status": head.status_code, "body": body})


def _h11_message(connection: h11.Connection, buffer: bytearray) -> tuple[Any, bytes, bytes] | None:
    """(head, body, raw bytes) of the first whole message in buffer, or None."""
    connection.receive_data(bytes(buffer))
    head: Any = None
    body = bytearray()
    try:
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                return None
            if isinstance(event, h11.Request | h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                raise Unparsable
    except h11.RemoteProtocolError:
        raise Unparsable from None
    rest = len(connection.trailing_data[0])
    return head, bytes(body), bytes(buffer[: len(buffer) - rest])


def framers() -> tuple[Framer, Framer]:
    """(requests, replies) of a new connection."""
    methods: deque[str] = deque()
    return HttpRequests(methods), HttpReplies(methods)
