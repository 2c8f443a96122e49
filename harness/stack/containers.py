"""Redis servers in containers of their own, for the experiments that break them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import docker.errors
from docker import DockerClient
from docker.models.containers import Container
from docker.models.networks import Network

from harness.stack import Address, StackError, free_port
from harness.stack.docker_engine import ENGINE_ERRORS, OWNER, log_of
from harness.stack.redis import RedisServer

T = TypeVar("T")

BASE_OPTIONS = (
    *("--protected-mode", "no"),
    *("--databases", "16"),
    *("--save", ""),
    *("--appendonly", "no"),
    *("--maxclients", "10000"),
    *("--hz", "50"),
    *("--repl-diskless-sync-delay", "0"),  # no use in waiting for more replicas
)
"""As for the server that is shared; the options of an experiment come after these, and win."""

_PORT = 6379
_PORT_ATTEMPTS = 5
_NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Site:
    """Where containers of a run go: the engine, the image under test, the network, and whose they are."""

    client: DockerClient
    image: str
    network: str
    owner: str


class ContainerRedis(RedisServer):
    """A container that the harness has started itself, to be killed, paused, restarted and cut off, on one port.

    Its data is in directory, on this host, where a fault may cut a file back while the server is down.
    """

    def __init__(
        self, site: Site, name: str, directory: Path, options: Sequence[str], inside: Mapping[Address, Address]
    ) -> None:
        super().__init__("127.0.0.1", 0, own=True)
        self.directory = directory
        self.name = name
        self._site = site
        self._options = tuple(options)
        self._inside = inside
        self._container: Container | None = None
        self._known = False

    @property
    def inside(self) -> Address:
        """Where the other containers reach it."""
        return self.name, _PORT

    async def start(self, *options: str) -> None:
        """Starts the server, again on its port if it had one; options replace those given at first."""
        renewed = bool(options) and tuple(options) != self._options
        self._options = options or self._options
        await self._engine(self._start, renewed)
        self._known = True
        try:
            await self.ready()
        except StackError as error:
            raise StackError(f"{error}\nits log ends:\n{await self._engine(self._log)}") from error

    async def kill(self) -> None:
        """kill -9, and waits for the end."""
        await self._engine(self._kill)
        await self.disconnect()

    async def restart(self, *options: str, while_down: Callable[[], None] | None = None) -> None:
        """kill -9 and start again; while_down runs in between (to cut a file back, say)."""
        await self.kill()
        if while_down is not None:
            while_down()
        await self.start(*options)

    async def pause(self) -> None:
        """Freezes all of its processes (the freezer cgroup): connections stay, nothing answers."""
        await self._engine(lambda: self._running.pause())

    async def unpause(self) -> None:
        await self._engine(lambda: self._running.unpause())

    async def cut_off(self) -> None:
        """Disconnects it from its network: established connections end, new ones are refused or reset."""
        await self._engine(lambda: self._network().disconnect(self._running))
        await self.disconnect()

    async def reconnect(self) -> None:
        """Connects it to its network again, on the same port of this host."""
        await self._engine(lambda: self._network().connect(self._running))
        await self.ready()

    async def state(self) -> str:
        """The engine's own account: running, paused, exited, ..."""
        await self._engine(lambda: self._running.reload())
        status: str = self._running.status
        return status

    async def remove(self) -> None:
        """Ends it and removes it with all it had."""
        await self.disconnect()
        if self._container is not None:
            await self._engine(lambda: self._running.remove(force=True, v=True))
            self._container = None

    async def _engine(self, call: Callable[..., T], *arguments: object) -> T:
        try:
            return await asyncio.to_thread(call, *arguments)
        except ENGINE_ERRORS as error:
            raise StackError(f"the Docker Engine did not do its part for {self.name}: {error}") from error

    @property
    def _running(self) -> Container:
        if self._container is None:
            raise StackError(f"{self.name} was never started")
        return self._container

    def _network(self) -> Network:
        return self._site.client.networks.get(self._site.network)

    def _start(self, renewed: bool) -> None:
        if self._container is not None and renewed:
            self._container.remove(force=True, v=True)
            self._container = None
        for attempt in range(_PORT_ATTEMPTS):
            if self._container is None:
                self.port = self.port or free_port()
                self._container = self._create()
            try:
                self._container.start()
                return
            except docker.errors.APIError as error:
                # Somebody else may have taken the port since we looked; one that links know already must stay.
                taken = any(words in str(error) for words in ("port is already allocated", "address already in use"))
                if not taken or self._known or attempt == _PORT_ATTEMPTS - 1:
                    raise
                self._container.remove(force=True, v=True)
                self._container, self.port = None, 0

    def _create(self) -> Container:
        self.directory.mkdir(parents=True, exist_ok=True)
        # As ourselves, so that we can cut back and remove its files; root steps down to an account without rights.
        uid, gid = os.geteuid(), os.getegid()
        if uid == 0:
            uid = gid = _NOBODY
            os.chown(self.directory, uid, gid)
        return self._site.client.containers.create(
            self._site.image,
            ["redis-server", *BASE_OPTIONS, *_inside(self._options, self._inside)],
            name=self.name,
            user=f"{uid}:{gid}",
            network=self._site.network,
            ports={f"{_PORT}/tcp": (self.host, self.port)},
            volumes={str(self.directory): {"bind": "/data", "mode": "rw"}},
            working_dir="/data",
            labels={OWNER: self._site.owner},
            security_opt=["no-new-privileges:true"],
            cap_drop=["ALL"],
        )

    def _kill(self) -> None:
        try:
            self._running.kill()
        except docker.errors.APIError as error:
            if error.status_code != 409:  # 409: it is not running
                raise
        self._running.wait()

    def _log(self) -> str:
        return log_of(self._running)


def _inside(options: Sequence[str], inside: Mapping[Address, Address]) -> list[str]:
    """The options with `--replicaof HOST PORT` as the containers know that server."""
    seen = list(options)
    for index, option in enumerate(seen[:-2]):
        if option == "--replicaof" and (there := inside.get((seen[index + 1], int(seen[index + 2])))):
            seen[index + 1 : index + 3] = [there[0], str(there[1])]
    return seen
