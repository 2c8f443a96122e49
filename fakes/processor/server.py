"""The HTTP server: uvicorn, several listening sockets, one event loop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from fakes.processor.connection import Connection

KEEP_ALIVE_S = 600
"""Seconds that an idle connection is kept: a frozen worker must find its connection as it left it."""
BACKLOG = 2048


class Server(uvicorn.Server):
    """Calls ready once it accepts; on SIGTERM or SIGINT it ends at once, with status 0.

    A charge in flight is cut off as by kill -9: it is in the ledger or it is not, and its caller hears nothing.
    """

    def __init__(self, applications: Mapping[int, ASGIApp], ready: Callable[[], None]) -> None:
        async def by_port(scope: Scope, receive: Receive, send: Send) -> None:
            await applications[scope["server"][1]](scope, receive, send)

        super().__init__(
            uvicorn.Config(
                by_port,
                http=Connection,
                loop="asyncio",
                ws="none",
                lifespan="off",
                interface="asgi3",
                access_log=False,
                log_config=None,
                log_level="error",
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                backlog=BACKLOG,
            )
        )
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: object) -> None:
        self.should_exit = True  # uvicorn's own would raise the signal again in the end: no status 0

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Requests are cancelled as the loop ends, which uvicorn reports as errors of the application.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # before the cancelling, which uvicorn would answer with a 500
        await asyncio.sleep(0)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError."""
    # The protocol is named because asyncio sets TCP_NODELAY only where it is; uvicorn writes head and body apart,
    # and Nagle's algorithm would keep the body back for the 40 ms of a delayed acknowledgement.
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart gets the same port again
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def url(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
