"""A listener, an upstream, and the connections between them (proxy.go)."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

from fakes.toxiproxy.addresses import BadAddress, listen, listening_on, resolve
from fakes.toxiproxy.decode import dumps
from fakes.toxiproxy.errors import unexpected
from fakes.toxiproxy.link import Link
from fakes.toxiproxy.peer import Peer
from fakes.toxiproxy.toxic_collection import ToxicCollection
from fakes.toxiproxy.toxics.toxic import Stream

_ACCEPT_PAUSE_S = 0.05
"""Between attempts to accept while the process is out of file descriptors."""


class _Connection:
    """A client, its upstream and a link for each direction."""

    def __init__(self, client: socket.socket, upstream: socket.socket, proxy: Proxy) -> None:
        self._peers = (Peer(client), Peer(upstream))
        self._proxy = proxy
        self._links: list[Link] = []
        self._open_links = 2

    async def start(self) -> None:
        client, upstream = self._peers
        directions: tuple[tuple[Stream, Peer, Peer], ...] = (
            ("upstream", client, upstream),
            ("downstream", upstream, client),
        )
        for stream, source, destination in directions:
            self._links.append(await self._proxy.toxics.start_link(stream, source, destination, self._link_ended))

    def close(self) -> None:
        """Drops the connection, whatever is still under way in it."""
        for peer in self._peers:
            peer.close()
        for link in self._links:
            self._proxy.toxics.forget_link(link)
            link.abandon()
        self._proxy.connections.discard(self)

    def _link_ended(self, link: Link) -> None:
        self._proxy.toxics.forget_link(link)
        self._open_links -= 1
        if self._open_links == 0:
            self.close()


class Proxy:
    """enabled: it listens. listen: as asked for; once it has listened, the address it got."""

    def __init__(self, name: str, listen: str, upstream: str) -> None:
        self.name = name
        self.listen = listen
        self.upstream = upstream
        self.enabled = False
        self.toxics = ToxicCollection()
        self.connections: set[_Connection] = set()
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def to_json(self) -> str:
        enabled = "true" if self.enabled else "false"
        # Logger: nothing keeps Toxiproxy's logger out of its JSON, so clients have learned to expect an empty object.
        return (
            f'{{"name":{dumps(self.name)},"listen":{dumps(self.listen)},"upstream":{dumps(self.upstream)},'
            f'"enabled":{enabled},"Logger":{{}},"toxics":{await self.toxics.to_json()}}}'
        )

    async def start(self) -> None:
        """Listens; does nothing when it does already. Raises ApiError when the address cannot be had."""
        async with self._lock:
            await self._start()

    async def stop(self) -> None:
        """Refuses from now on, and drops every connection."""
        async with self._lock:
            await self._stop()

    async def update(self, listen: str, upstream: str, enabled: bool) -> None:
        """Another address restarts the proxy, so that its connections are dropped. Raises ApiError."""
        async with self._lock:
            if await self.differs(listen, upstream):
                await self._stop()
                self.listen, self.upstream = listen, upstream
            if enabled:
                await self._start()
            else:
                await self._stop()

    async def differs(self, listen: str, upstream: str) -> bool:
        """Compares with the address that it listens on, so that port 0 always differs. Raises ApiError."""
        try:
            resolved = (await resolve(listen))[0]
        except BadAddress as error:
            raise unexpected(str(error)) from None
        return self.listen != str(resolved) or self.upstream != upstream

    async def _start(self) -> None:
        if self.enabled:
            return
        try:
            self._listener = await listen(self.listen)
        except BadAddress as error:
            raise unexpected(str(error)) from None
        self.listen = listening_on(self._listener)
        self._accepting = asyncio.create_task(self._accept(self._listener))
        self.enabled = True

    async def _stop(self) -> None:
        if not (self.enabled and self._accepting and self._listener):
            return
        self.enabled = False
        self._accepting.cancel()
        await asyncio.wait([self._accepting])
        self._listener.close()
        for connection in list(self.connections):
            connection.close()

    async def _accept(self, listener: socket.socket) -> None:
        """One client after the other: while an upstream does not answer, the next client waits, as in Toxiproxy."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(_ACCEPT_PAUSE_S)
                continue
            with ExitStack() as undo:
                undo.callback(client.close)
                upstream = await _dial(self.upstream)
                if upstream is None:
                    continue
                connection = _Connection(client, upstream, self)
                self.connections.add(connection)
                undo.pop_all()
                await connection.start()


async def _dial(address: str) -> socket.socket | None:
    """A connection to the first address that answers, or None."""
    try:
        candidates = await resolve(address)
    except BadAddress:
        return None
    for candidate in candidates:
        with ExitStack() as undo:
            sock = socket.socket(candidate.family, socket.SOCK_STREAM)
            undo.callback(sock.close)
            sock.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(sock, (candidate.host or "127.0.0.1", candidate.port))
            except OSError:
                continue
            undo.pop_all()
            return sock
    return None
