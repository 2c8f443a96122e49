"""A link: where a worker connects for one server. It refuses while the server does, and when it is told to."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable

from harness.network.connection import Connection
from harness.network.tap import Interceptor, Message

Address = tuple[str, int]

_UPSTREAM_PROBE_S = 0.02


class Link:
    """One worker's path to one server. Listens on loopback; upstream says where the server is, each time anew."""

    def __init__(
        self,
        name: str,
        worker: str,
        upstream: Callable[[], Awaitable[Address]],
        on_message: Callable[[Message], None],
    ) -> None:
        self.name = name
        self.worker = worker
        self.upstream = upstream
        self.on_message = on_message
        self.interceptor: Interceptor | None = None
        self.connections: set[Connection] = set()
        self.errors: list[BaseException] = []
        self.accepted = 0
        self.port = 0
        self._counts: Counter[str] = Counter()
        self._server: asyncio.Server | None = None
        self._reserved: socket.socket | None = None
        self._probe: asyncio.Task[None] | None = None

    async def open(self) -> Address:
        """Starts to listen and returns the address."""
        sock = self._bound(self.port)
        self.port = sock.getsockname()[1]
        await self._listen(sock)
        return "127.0.0.1", self.port

    @staticmethod
    def _bound(port: int) -> socket.socket:
        # asyncio sets TCP_NODELAY only where the protocol is named; without it every second message waits 40 ms
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("127.0.0.1", port))
        return sock

    async def _listen(self, sock: socket.socket) -> None:
        self._server = await asyncio.get_running_loop().create_server(self._accept, sock=sock, backlog=128)

    def _accept(self) -> asyncio.Protocol:
        self.accepted += 1
        return Connection(self).worker

    def count(self, label: str) -> int:
        self._counts[label] += 1
        return self._counts[label]

    def refuse(self) -> None:
        """New connections are refused from now on (ECONNREFUSED); the port stays ours, bound but not listening."""
        if self._server is not None:
            self._reserved = self._bound(self.port)
            self._server.close()
            self._server = None

    async def accept_again(self) -> None:
        """Ends refuse()."""
        if self._server is None:
            await self._listen(self._bound(self.port))
            if self._reserved is not None:
                self._reserved.close()
                self._reserved = None

    def upstream_refused(self, error: OSError) -> None:
        """The server refuses, so the link does too, until the server accepts again."""
        if self._probe is None or self._probe.done():
            self.refuse()
            self._probe = asyncio.get_running_loop().create_task(self._until_upstream_accepts())

    async def _until_upstream_accepts(self) -> None:
        while True:
            await asyncio.sleep(_UPSTREAM_PROBE_S)
            try:
                _, writer = await asyncio.open_connection(*await self.upstream())
            except OSError:
                continue
            writer.close()
            await self.accept_again()
            return

    def reset_all(self) -> int:
        """Resets every connection of this link; returns how many there were."""
        connections = list(self.connections)
        for connection in connections:
            connection.reset()
        return len(connections)

    def failed(self, error: BaseException) -> None:
        """A handler or the relay itself failed: whoever judges must know."""
        self.errors.append(error)

    def close(self) -> None:
        """Stops listening and closes every connection."""
        if self._probe is not None:
            self._probe.cancel()
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._reserved is not None:
            self._reserved.close()
        for connection in list(self.connections):
            connection.close()
