"""The toxics of one proxy, and the connections that live under them (toxic_collection.go)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fakes.toxiproxy.decode import Struct, decode
from fakes.toxiproxy.errors import (
    bad_request_body,
    invalid_stream,
    invalid_toxic_type,
    toxic_already_exists,
    toxic_not_found,
)
from fakes.toxiproxy.link import Link
from fakes.toxiproxy.peer import Peer
from fakes.toxiproxy.syntax import Value
from fakes.toxiproxy.toxics import noop
from fakes.toxiproxy.toxics.toxic import REGISTER, STREAMS, Setting, Stream, Toxic

_NEW = Struct(
    "toxics.ToxicWrapper",
    # What a toxic is given is looked at once its type is known; until then any object will do.
    {"attributes": noop.Noop.wanted(), "name": "string", "type": "string", "stream": "string", "toxicity": "float32"},
    "ToxicWrapper",
)


def _attributes_of(toxic: type[Toxic]) -> Struct:
    return Struct('struct { Attributes interface {} "json:\\"attributes\\"" }', {"attributes": toxic.wanted()})


def _update_of(toxic: type[Toxic]) -> Struct:
    go_type = 'struct { Attributes interface {} "json:\\"attributes\\""; Toxicity float32 "json:\\"toxicity\\"" }'
    return Struct(go_type, {"attributes": toxic.wanted(), "toxicity": "float32"})


class ToxicCollection:
    """One change at a time: a change waits until every live connection has taken it, and everything else waits for it.

    A connection whose destination does not read can make that wait long; Toxiproxy behaves so too.
    """

    def __init__(self) -> None:
        self._settings: dict[Stream, list[Setting]] = {stream: [] for stream in STREAMS}
        self._links: set[Link] = set()
        self._lock = asyncio.Lock()

    async def to_json(self) -> str:
        """Every toxic, those of the upstream direction first, each in chain order."""
        async with self._lock:
            return f"[{','.join(setting.to_json() for stream in STREAMS for setting in self._settings[stream])}]"

    async def get(self, name: str) -> Setting:
        async with self._lock:
            return self._find(name)

    async def add(self, body: Value) -> Setting:
        """Raises ApiError."""
        async with self._lock:
            given = decode(body, _NEW)
            if given.complaint:
                raise bad_request_body(given.complaint)
            stream_given = given.values.get("stream", "downstream")
            stream = next((each for each in STREAMS if each == stream_given.lower()), None)
            if stream is None:
                raise invalid_stream()
            type_name = given.values.get("type", "")
            name = given.values.get("name") or f"{type_name}_{stream_given}"
            if type_name not in REGISTER:
                raise invalid_toxic_type()
            if self._named(name):
                raise toxic_already_exists()
            toxic = REGISTER[type_name]()
            wanted = decode(body, _attributes_of(REGISTER[type_name]))
            if wanted.complaint:
                raise bad_request_body(wanted.complaint)
            toxic.update(wanted.values.get("attributes", {}))
            setting = Setting(toxic, name, type_name, stream, stream_given, given.values.get("toxicity", 1.0))
            self._settings[stream].append(setting)
            await self._each_link(stream, lambda link: link.add(setting))
            return setting

    async def update(self, name: str, body: Callable[[], Value]) -> Setting:
        """Attributes and toxicity; the rest of a toxic is for life. Raises ApiError.

        As in the real server, attributes that fit have been set when one that does not makes it refuse the request.
        """
        async with self._lock:
            setting = self._find(name)
            given = decode(body(), _update_of(type(setting.toxic)))
            setting.toxic.update(given.values.get("attributes", {}))
            if given.complaint:
                raise bad_request_body(given.complaint)
            setting.toxicity = given.values.get("toxicity", setting.toxicity)
            await self._each_link(setting.stream, lambda link: link.update(setting))
            return setting

    async def remove(self, name: str) -> None:
        """Raises ApiError."""
        async with self._lock:
            await self._remove(self._find(name))

    async def reset(self) -> None:
        async with self._lock:
            for stream in STREAMS:
                while self._settings[stream]:
                    await self._remove(self._settings[stream][0])

    async def start_link(self, stream: Stream, source: Peer, destination: Peer, ended: Callable[[Link], None]) -> Link:
        """Connects two peers in one direction, under the toxics of the moment."""
        async with self._lock:
            link = Link(stream, source, destination, ended)
            link.start(self._settings[stream])
            self._links.add(link)
            return link

    def forget_link(self, link: Link) -> None:
        self._links.discard(link)

    def _named(self, name: str) -> Setting | None:
        return next((each for stream in STREAMS for each in self._settings[stream] if each.name == name), None)

    def _find(self, name: str) -> Setting:
        setting = self._named(name)
        if setting is None:
            raise toxic_not_found()
        return setting

    async def _remove(self, setting: Setting) -> None:
        self._settings[setting.stream].remove(setting)
        await self._each_link(setting.stream, lambda link: link.remove(setting))

    async def _each_link(self, stream: Stream, change: Callable[[Link], Awaitable[None]]) -> None:
        await asyncio.gather(*(change(link) for link in self._links if link.stream == stream))
