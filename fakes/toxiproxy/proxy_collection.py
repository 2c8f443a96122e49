"""Every proxy by name (proxy_collection.go)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from fakes.toxiproxy.decode import Struct, decode, decode_list, dumps
from fakes.toxiproxy.errors import ApiError, bad_request_body, missing_field, proxy_already_exists, proxy_not_found
from fakes.toxiproxy.proxy import Proxy
from fakes.toxiproxy.syntax import Value

_PROXY = Struct(
    "toxiproxy.Proxy",
    {
        "name": "string",
        "listen": "string",
        "upstream": "string",
        "enabled": "bool",
        "Logger": Struct("zerolog.Logger", {}, "Logger"),
    },
    "Proxy",
)
_POPULATED = Struct(
    'struct { toxiproxy.Proxy; Enabled *bool "json:\\"enabled\\"" }',
    _PROXY.fields,
    embedded=dict.fromkeys(("name", "listen", "upstream", "Logger"), "Proxy"),
)


@dataclass(slots=True)
class Populated:
    """What a request to populate has done: the proxies it had come to when an error, if any, ended it."""

    proxies: list[Proxy] = field(default_factory=list)
    error: ApiError | None = None

    async def to_json(self) -> str:
        refusal = f'"error":{dumps(self.error.text)},"status":{self.error.status},' if self.error else ""
        proxies = ",".join([await proxy.to_json() for proxy in self.proxies])
        return f'{{{refusal}"proxies":{f"[{proxies}]" if proxies else "null"}}}'


class ProxyCollection:
    def __init__(self) -> None:
        self._proxies: dict[str, Proxy] = {}
        self._lock = asyncio.Lock()

    def get(self, name: str) -> Proxy:
        """Raises ApiError."""
        if name not in self._proxies:
            raise proxy_not_found()
        return self._proxies[name]

    async def to_json(self) -> str:
        """All of them, in order of their names."""
        proxies = sorted(self._proxies.items())
        return f"{{{','.join([f'{dumps(name)}:{await proxy.to_json()}' for name, proxy in proxies])}}}"

    async def create(self, body: Value) -> Proxy:
        """Raises ApiError."""
        given = decode(body, _PROXY)
        if given.complaint:
            raise bad_request_body(given.complaint)
        values = given.values
        for name in ("name", "upstream"):
            if not values.get(name):
                raise missing_field(name)
        proxy = Proxy(values["name"], values.get("listen", ""), values["upstream"])
        async with self._lock:
            if proxy.name in self._proxies:
                raise proxy_already_exists()
            if values.get("enabled", True):
                await proxy.start()
            self._proxies[proxy.name] = proxy
        return proxy

    async def update(self, proxy: Proxy, body: Value) -> None:
        """Raises ApiError."""
        given = decode(body, _PROXY)
        if given.complaint:
            raise bad_request_body(given.complaint)
        values = given.values
        await proxy.update(
            values.get("listen", proxy.listen),
            values.get("upstream", proxy.upstream),
            values.get("enabled", proxy.enabled),
        )

    async def remove(self, name: str) -> None:
        """Raises ApiError."""
        async with self._lock:
            await self.get(name).stop()
            del self._proxies[name]

    async def populate(self, body: Value) -> Populated:
        """Makes these proxies exist; one that exists with the same addresses stays as it is, toxics and enabled too."""
        given, complaint = decode_list(body, _POPULATED)
        if complaint:
            return Populated(error=bad_request_body(complaint))
        for number, item in enumerate(given, start=1):
            for name in ("name", "upstream"):
                if not item.values.get(name):
                    return Populated(error=missing_field(f"{name} at proxy {number}"))
        done = Populated()
        for item in given:
            values = item.values
            proxy = Proxy(values["name"], values.get("listen", ""), values["upstream"])
            try:
                done.proxies.append(await self._add_or_replace(proxy, values.get("enabled", True)))
            except ApiError as error:
                done.error = error
                break
        return done

    async def reset(self) -> None:
        """Enables every proxy and takes all toxics away. Raises ApiError at the first that cannot be enabled."""
        for proxy in list(self._proxies.values()):
            await proxy.start()
            await proxy.toxics.reset()

    async def _add_or_replace(self, proxy: Proxy, enabled: bool) -> Proxy:
        async with self._lock:
            existing = self._proxies.get(proxy.name)
            if existing:
                if not await existing.differs(proxy.listen, proxy.upstream):
                    return existing
                await existing.stop()
            if enabled:
                await proxy.start()
            self._proxies[proxy.name] = proxy
            return proxy
