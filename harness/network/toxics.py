"""Toxiproxy, driven by toxiproxy-python: proxies for the links that need a toxic, every setting read back.

toxiproxy-python keeps the server's address in a class, sets no timeout, takes a 5xx for success and cannot update a
toxic; so all calls go through here, and what was set is asked for again: a fault that failed to be set must never look
like a pass. Two threads make them: what strikes or heals at this moment does not wait for proxies that are prepared.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import requests
import toxiproxy
from toxiproxy.api import APIConsumer

from harness.stack import Address, StackError

T = TypeVar("T")
_TIMEOUT_S = 10.0


class ToxicError(StackError):
    """Toxiproxy did not do what it was told: the fault has not landed."""


@dataclass(slots=True)
class Proxy:
    """One proxy: connect to address to reach the server through it."""

    name: str
    address: Address
    _owner: Toxiproxy

    async def add_toxic(self, kind: str, stream: str, **attributes: int) -> None:
        """Adds a toxic and reads it back. stream: "upstream" (requests) or "downstream" (replies)."""
        await self._owner.call_now(self._add_toxic, kind, stream, attributes)

    def _add_toxic(self, kind: str, stream: str, attributes: Mapping[str, int]) -> None:
        proxy = self._handle()
        name = f"{kind}_{stream}"
        proxy.add_toxic(name=name, type=kind, stream=stream, toxicity=1.0, attributes=dict(attributes))
        toxic = proxy.get_toxic(name)
        seen = None if toxic is None else (toxic.type, toxic.stream, toxic.toxicity, toxic.attributes)
        if (
            toxic is None
            or toxic.type != kind
            or toxic.stream != stream
            or toxic.toxicity != 1.0
            or any(toxic.attributes.get(key) != value for key, value in attributes.items())
        ):
            raise ToxicError(f"toxic {name} {dict(attributes)} was set on {self.name}, but Toxiproxy says {seen}")

    async def remove_toxic(self, kind: str, stream: str) -> None:
        await self._owner.call_now(self._remove_toxic, f"{kind}_{stream}")

    def _remove_toxic(self, name: str) -> None:
        proxy = self._handle()
        proxy.destroy_toxic(name)
        if proxy.get_toxic(name) is not None:
            raise ToxicError(f"toxic {name} of {self.name} was removed, but Toxiproxy still has it")

    async def enable(self, enabled: bool) -> None:
        await self._owner.call_now(self._enable, enabled)

    def _enable(self, enabled: bool) -> str:
        """Returns the listening address, which is known once the proxy listens."""
        proxy = self._handle()
        proxy.enable() if enabled else proxy.disable()
        seen = self._proxy()
        if seen.enabled is not enabled:
            raise ToxicError(f"proxy {self.name}: enabled={enabled} was set, but Toxiproxy says otherwise")
        listen: str = seen.listen
        return listen

    async def destroy(self) -> None:
        await self._owner.call(self._destroy)

    def _destroy(self) -> None:
        APIConsumer.delete(f"/proxies/{self.name}")

    def _handle(self) -> toxiproxy.proxy.Proxy:
        """For calls that need no more than the name."""
        return toxiproxy.proxy.Proxy(name=self.name, upstream="", enabled=None, listen="")

    def _proxy(self) -> toxiproxy.proxy.Proxy:
        # Toxiproxy.get_proxy would fetch every proxy of the server
        answer = APIConsumer.get(f"/proxies/{self.name}", timeout=_TIMEOUT_S).json()
        return toxiproxy.proxy.Proxy(**answer)


class Toxiproxy:
    """The Toxiproxy server of this run (the real one or the stand-in: this cannot tell).

    server_host: where Toxiproxy reaches the servers (another name than 127.0.0.1 when it runs in a container);
    ports: the listening ports it may use, None for any.
    """

    def __init__(self, host: str, port: int, *, listen_host: str = "127.0.0.1", ports: range | None = None) -> None:
        self.host = host
        self.port = port
        self.version = ""
        self._listen_host = listen_host
        self._numbers = itertools.count(1)
        self._thread = ThreadPoolExecutor(1, "toxiproxy")
        self._thread_for_now = ThreadPoolExecutor(1, "toxiproxy-now")
        self._ports: asyncio.Queue[int] | None = None
        if ports is not None:
            self._ports = asyncio.Queue()
            for number in ports:
                self._ports.put_nowait(number)

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Runs a call of toxiproxy-python in its turn. Raises ToxicError."""
        return await self._call(self._thread, function, *args)

    async def call_now(self, function: Callable[..., T], *args: Any) -> T:
        """Runs a call that others which prepare something must not hold up. Raises ToxicError."""
        return await self._call(self._thread_for_now, function, *args)

    async def _call(self, thread: ThreadPoolExecutor, function: Callable[..., T], *args: Any) -> T:
        def run() -> T:
            APIConsumer.host, APIConsumer.port = self.host, self.port
            try:
                return function(*args)
            except (requests.RequestException, KeyError, TypeError, ValueError) as error:
                raise ToxicError(f"Toxiproxy at {self.host}:{self.port} did not understand: {error}") from error
            except _CLIENT_ERRORS as error:
                raise ToxicError(f"Toxiproxy at {self.host}:{self.port} refused: {error}") from error

        return await asyncio.get_running_loop().run_in_executor(thread, run)

    async def ask_version(self) -> str:
        self.version = await self.call(self._version)
        return self.version

    def _version(self) -> str:
        text: str = requests.get(f"http://{self.host}:{self.port}/version", timeout=_TIMEOUT_S).text
        return text.strip().removeprefix('{"version": "').removesuffix('"}').strip()

    async def proxy(self, upstream: Address, toxics: Sequence[tuple[str, str, dict[str, int]]] = ()) -> Proxy:
        """A proxy to upstream that has these toxics (type, stream, attributes) from its first connection on.

        A proxy and its toxics cannot be created in one step (Shopify/toxiproxy#148): it is created disabled.
        """
        name = f"lockproof-{next(self._numbers)}"
        port = 0 if self._ports is None else await self._ports.get()
        proxy = Proxy(name, (self.host, 0), self)

        def make() -> str:
            self._create(name, f"{self._listen_host}:{port}", f"{upstream[0]}:{upstream[1]}")
            for kind, stream, attributes in toxics:
                proxy._add_toxic(kind, stream, attributes)
            return proxy._enable(True)

        listen = await self.call(make)
        proxy.address = self.host, int(listen.rsplit(":", 1)[1])
        return proxy

    def _create(self, name: str, listen: str, upstream: str) -> None:
        answer = APIConsumer.post(
            "/proxies",
            json={"name": name, "listen": listen, "upstream": upstream, "enabled": False},
            timeout=_TIMEOUT_S,
        )
        if answer.status_code != 201:
            raise ToxicError(f"Toxiproxy answered {answer.status_code} to the creation of a proxy: {answer.text[:300]}")

    async def give_back(self, proxy: Proxy) -> None:
        """Destroys a proxy; its port may be used again."""
        await proxy.destroy()
        if self._ports is not None:
            self._ports.put_nowait(proxy.address[1])

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._thread_for_now.shutdown(wait=False, cancel_futures=True)


_CLIENT_ERRORS = (
    toxiproxy.exceptions.ProxyExists,
    toxiproxy.exceptions.NotFound,
    toxiproxy.exceptions.InvalidToxic,
)

__all__ = ["Proxy", "ToxicError", "Toxiproxy"]
