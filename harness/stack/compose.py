"""The composed stack: docker-compose.yml's servers, used where they are up already, else brought up for this run."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import requests
from docker import DockerClient
from docker.models.containers import Container
from redis.exceptions import RedisError
from tenacity import AsyncRetrying, RetryError, retry_if_result, stop_after_delay, wait_fixed

from harness.advisory import AdvisoryWatch
from harness.launcher import Keeper
from harness.network.toxics import ToxicError, Toxiproxy
from harness.stack import Address, StackError, Versions
from harness.stack import docker_engine as engine
from harness.stack.attached import ContainerPostgres, ContainerToxiproxy
from harness.stack.beside import Beside
from harness.stack.cells import Cells, Site
from harness.stack.containers import ContainerRedis
from harness.stack.postgres import Postgres
from harness.stack.processor import ROLES, ProcessorControl
from harness.stack.project import (
    NETWORK,
    PORTS,
    PROJECT,
    SERVICES,
    Deaths,
    compose_file,
    in_use_lock,
    remove_orphans,
    running,
    up_environment,
)
from harness.stack.reaper import Reaper
from harness.stack.redis import DATABASES, RedisServer
from harness.stack.room import Needs, Room

_UP_TIMEOUT_S = 900.0
"""Pulling the images, on the first use, included."""
_READY_TIMEOUT_S = 60.0
_DIRECT_TIMEOUT_S = 2.0
PROXIED = "the containers are reached only through Docker's proxy, which accepts a connection whatever is behind it"
"""Why a link that is refused or reset is not to be had, where the containers' own addresses are not reached."""
MOST_OWN_SERVERS = 16
"""How many Redis containers are up at most for the experiments that break their server."""


class ComposeStack:
    """Redis, Toxiproxy, PostgreSQL and the fake processor in containers; workers and their taps stay on the host."""

    kind = "compose"

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._held = ExitStack()
        self._inside: dict[Address, Address] = {}
        self._containers: dict[str, Container] = {}
        self._cells: Cells
        self._reaper: Reaper | None = None
        self._deaths: Deaths | None = None
        self.project = self._network = ""
        self.directory = keeper.directory
        self.versions = Versions()
        self.advisory = AdvisoryWatch()
        self.no_postgres: str | None = None
        self.beside = Beside(keeper, keeper.directory)
        self.room = Room()
        self.databases: Sequence[int] = range(1, DATABASES)
        self.no_own_redis: str | None = None
        self.no_refusals: str | None = PROXIED
        self.no_second_postgres: str | None = None
        self.redis: RedisServer
        self.processor: ProcessorControl
        self.toxiproxy: Toxiproxy
        self.postgres: Postgres | None = None

    async def start(self) -> None:
        """Finds or brings up the project and waits until every server answers. Raises StackError."""
        try:
            client = await asyncio.to_thread(engine.connect)
            self._held.enter_context(closing(client))
            await self._find_or_bring_up(client)
            self._deaths = await asyncio.to_thread(Deaths, client, self._containers)
            await self._attach()
        except engine.ENGINE_ERRORS as error:
            await self.stop()
            raise StackError(f"the Docker Engine did not do its part: {error}") from error
        except BaseException:
            await self.stop()
            raise

    async def _find_or_bring_up(self, client: DockerClient) -> None:
        lock = self.directory / f"compose-{secrets.token_hex(4)}.lock"
        self._held.enter_context(engine.locked(lock))
        owner = engine.owner_label(lock)
        await asyncio.to_thread(remove_orphans, client)
        self._reaper = await asyncio.to_thread(Reaper, owner)
        self.project = os.environ.get("COMPOSE_PROJECT_NAME") or PROJECT
        found = await asyncio.to_thread(running, client, self.project)
        if not found:
            self.project = f"{PROJECT}-{hashlib.sha256(owner.encode()).hexdigest()[:8]}"
            await self._bring_up(owner)
            found = await asyncio.to_thread(running, client, self.project)
        elif not self._held.enter_context(engine.locked(in_use_lock(found["redis"]), remove=True)):
            raise StackError(f"another run uses the Compose project {self.project}: wait for it, or take it down first")
        self._containers = found
        self._network = f"{self.project}_{NETWORK}"
        site = Site(client, found["redis"].attrs["Config"]["Image"], self._network, owner)
        self._cells = Cells(site, self.directory, self.project)

    async def _bring_up(self, owner: str) -> None:
        log = self.directory / "compose-up.log"
        if shutil.which("docker") is None:
            raise StackError("no docker command on PATH: install Docker with Compose v2")
        argv = ["docker", "compose", "--file", str(compose_file()), "--project-name", self.project]
        argv += ["up", "--detach", "--quiet-pull", *SERVICES]
        up = await self._keeper.spawn(argv, env=up_environment(owner), output=log)
        try:
            status = await asyncio.wait_for(up.wait(), _UP_TIMEOUT_S)
        except TimeoutError as error:
            raise StackError(f"docker compose up took longer than {_UP_TIMEOUT_S:.0f} s:\n{_tail(log)}") from error
        if status != 0:
            raise StackError(f"docker compose up ended with status {status}:\n{_tail(log)}")

    # --- the servers ---

    async def _attach(self) -> None:
        """Redis first, the others side by side; when one fails, nothing goes on behind its back."""
        await self._attach_redis()
        attaching = (self._attach_toxiproxy, self._attach_processor, self._attach_postgres)
        tasks = [asyncio.ensure_future(attach()) for attach in attaching]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _attach_redis(self) -> None:
        self.redis = RedisServer(*self._at("redis", PORTS["redis"]))
        await self.redis.ready()
        if await self._find_direct_way():
            await self.redis.disconnect()
            self.redis = RedisServer(*self._at("redis", PORTS["redis"]))
            await self.redis.ready()
        # Whatever an earlier run that was killed has left; nobody else's data is in a project of this name.
        for name in await self.redis.info("keyspace"):
            await self.redis.flush(int(name.removeprefix("db")))
        self.versions.redis = self.redis.version

    async def _find_direct_way(self) -> bool:
        """Whether containers are reached at their own addresses, as they are where the engine is on this machine.

        Behind a published port is Docker's proxy: it accepts for a server that refuses, ends in good order what the
        server resets, and acknowledges what the server has not got.
        """
        here = RedisServer(engine.own_address(self._containers["redis"], self._network) or "", PORTS["redis"])
        try:
            async with asyncio.timeout(_DIRECT_TIMEOUT_S):
                same = (await here.info("server"))["run_id"] == (await self.redis.info("server"))["run_id"]
        except (TimeoutError, RedisError, OSError):
            same = False
        finally:
            await here.disconnect()
        if same:
            self.no_refusals = None
        return same

    async def _attach_toxiproxy(self) -> None:
        host, port = engine.published(self._containers["toxiproxy"], PORTS["toxiproxy"])
        listeners = engine.published_ports(self._containers["toxiproxy"])
        del listeners[PORTS["toxiproxy"]]
        listeners = {number: self._at("toxiproxy", number) for number in listeners}
        self.room = Room(Needs(len(listeners), MOST_OWN_SERVERS, len(self.databases)))
        self.toxiproxy = toxiproxy = ContainerToxiproxy(host, port, listeners, self._inside)
        await self._until(toxiproxy.ask_version, (ToxicError, requests.RequestException), "toxiproxy")
        await toxiproxy.clear()
        self.versions.toxiproxy = f"{toxiproxy.version} (server)"

    async def _attach_processor(self) -> None:
        payment = {role: self._at("processor", PORTS[role]) for role in ROLES}
        host, port = engine.published(self._containers["processor"], PORTS["control"])
        self.processor = ProcessorControl(payment, f"http://{host}:{port}")
        await self._until(self.processor.health, (StackError,), "processor")
        self.processor.boot = (await self.processor.health())["boot"]

    async def _attach_postgres(self) -> None:
        settings = engine.environment(self._containers["postgres"])
        user = settings.get("POSTGRES_USER", "postgres")
        host, port = self._at("postgres", PORTS["postgres"])
        self.postgres = postgres = ContainerPostgres(host, port, user, settings.get("POSTGRES_PASSWORD", ""))
        await self._until(postgres.ask_version, (psycopg.OperationalError,), "postgres")
        await postgres.attach()
        self.versions.postgres = postgres.version
        self.advisory.serve(postgres)

    def _at(self, service: str, port: int) -> Address:
        """Where a server's port is for this host; Toxiproxy gets to know it as the containers do."""
        address = engine.published(self._containers[service], port)
        own = engine.own_address(self._containers[service], self._network)
        if self.no_refusals is None and own is not None:
            address = own, port
        self._inside[address] = service, port
        return address

    async def own_redis(self, *options: str) -> ContainerRedis:
        cell = await self._cells.take()
        self._inside[cell.address] = cell.inside
        server = ContainerRedis(self._cells, cell, options, self._inside)
        try:
            await server.start()
        except BaseException:
            await server.remove()
            raise
        return server

    async def _until(
        self, ask: Callable[[], Awaitable[object]], not_yet: tuple[type[Exception], ...], service: str
    ) -> None:
        """Polls until a server answers. Raises StackError when it ends or time runs out."""
        why = ""

        async def answers() -> bool:
            nonlocal why
            if (death := self.died()) is not None:
                raise StackError(
                    f"{death} while starting:\n{await asyncio.to_thread(engine.log_of, self._containers[service])}"
                )
            try:
                await ask()
            except not_yet as error:
                why = str(error)
                return False
            return True

        poll = AsyncRetrying(
            retry=retry_if_result(lambda done: not done), wait=wait_fixed(0.05), stop=stop_after_delay(_READY_TIMEOUT_S)
        )
        try:
            await poll(answers)
        except RetryError as error:
            log = await asyncio.to_thread(engine.log_of, self._containers[service])
            raise StackError(f"{service} does not answer within {_READY_TIMEOUT_S:.0f} s ({why}):\n{log}") from error

    def died(self) -> str | None:
        """The shared server that is gone although nobody broke it, with its status; None when all run."""
        return None if self._deaths is None else self._deaths.first

    def server_pids(self) -> dict[str, int]:
        pids = {name: engine.visible_pid(container) for name, container in self._containers.items()}
        return {name: pid for name, pid in pids.items() if pid is not None}

    async def stop(self) -> None:
        """Closes the harness's own connections and takes down what this run has brought up. Raises StackError."""
        if self._deaths is not None:
            await asyncio.to_thread(self._deaths.stop)
        await self.advisory.stop()
        if hasattr(self, "_cells"):
            self._cells.close()
        if hasattr(self, "redis"):
            await self.redis.disconnect()
        await self.beside.stop()
        if self.postgres is not None:
            await self.postgres.stop()
            self.postgres = None
        if hasattr(self, "processor"):
            self.processor.close()
        if hasattr(self, "toxiproxy"):
            self.toxiproxy.close()
        reaper, self._reaper = self._reaper, None
        failed = None if reaper is None else await asyncio.to_thread(reaper.reap)
        self._held.close()
        if failed is not None:
            raise StackError(failed)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:] if log.exists() else "(no output)"
