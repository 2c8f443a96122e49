"""The local stack: servers started on this machine, as this user, on loopback, each with a port of its own."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence

from tenacity import AsyncRetrying, RetryError, retry_if_result, stop_after_delay, wait_fixed

from harness import kernel
from harness.advisory import AdvisoryWatch
from harness.keeper import ALSO_REMOVE
from harness.launcher import Keeper
from harness.network.toxics import Toxiproxy
from harness.processes import Process, python_env
from harness.stack import PORT_ATTEMPTS, StackError, Versions, free_port
from harness.stack.accounts import ServerUnavailable
from harness.stack.addresses import STAND_IN
from harness.stack.beside import Beside
from harness.stack.postgres import Postgres
from harness.stack.processor import ROLES, ProcessorControl
from harness.stack.redis import DATABASES, SHARED, LocalRedis, RedisServer, find_server
from harness.stack.room import Room

_START_TIMEOUT_S = 30.0


def find_toxiproxy(asked: str | None = None) -> str | None:
    """The real Toxiproxy server; None: the stand-in takes its place.

    asked: a program, or STAND_IN. Without it the program in TOXIPROXY_SERVER, else toxiproxy-server on PATH. Raises
    StackError when a program is named that is none: the stand-in would take its place in silence.
    """
    if asked == STAND_IN:
        return None
    named = asked or os.environ.get("TOXIPROXY_SERVER")
    if named and shutil.which(named) is None:
        what = f"--harness-toxiproxy {asked}" if asked else f"TOXIPROXY_SERVER={named}"
        raise StackError(f"{what}: no such program. Use --harness-toxiproxy {STAND_IN} for the stand-in")
    return named or shutil.which("toxiproxy-server")


def local_servers(asked: str | None = None) -> str:
    """Which servers the local stack takes, in a few words, before any is started. asked: see find_toxiproxy()."""
    try:
        toxiproxy = find_toxiproxy(asked) or "stand-in (fakes/toxiproxy)"
        return f"Redis {find_server()}, Toxiproxy {toxiproxy}"
    except StackError as error:
        return str(error)


class LocalStack:
    """Redis, Toxiproxy (or its stand-in), the fake processor and PostgreSQL, all children of the keeper."""

    kind = "local"

    def __init__(self, keeper: Keeper, toxiproxy: str | None = None) -> None:
        self._keeper = keeper
        self._asked_toxiproxy = toxiproxy
        self._own = 0
        self.directory = keeper.directory
        self.versions = Versions()
        self.postgres: Postgres | None = None
        self.advisory = AdvisoryWatch()
        self.no_postgres: str | None = None
        self.beside = Beside(keeper, keeper.directory)
        self.no_own_redis: str | None = None
        self.no_refusals: str | None = None
        self.no_second_postgres: str | None = None
        self.room = Room()
        self.databases: Sequence[int] = range(1, DATABASES)
        self._processes: dict[str, Process] = {}
        self.redis: RedisServer
        self.processor: ProcessorControl
        self.toxiproxy: Toxiproxy
        self._started_s = time.monotonic()

    async def start(self) -> None:
        """Starts everything side by side. Raises StackError."""
        await asyncio.gather(
            self._start_redis(), self._start_toxiproxy(), self._start_processor(), self._start_postgres()
        )

    async def _start_redis(self) -> None:
        server = LocalRedis(self._keeper, self.directory / "redis", databases=DATABASES, options=SHARED, own=False)
        await server.start()
        self.redis = server
        self.versions.redis = server.version
        assert server.process is not None
        self._processes["redis"] = server.process

    async def own_redis(self, *options: str) -> LocalRedis:
        self._own += 1
        server = LocalRedis(
            self._keeper, self.directory / f"own-redis-{self._own}", databases=16, options=options, own=True
        )
        await server.start()
        return server

    async def _start_toxiproxy(self) -> None:
        binary = find_toxiproxy(self._asked_toxiproxy)
        for left in reversed(range(PORT_ATTEMPTS)):
            port = free_port()
            flags = ["-host", "127.0.0.1", "-port", str(port)]
            argv = [binary, *flags] if binary else [sys.executable, "-P", "-m", "fakes.toxiproxy", *flags]
            process = await self._spawn("toxiproxy", argv)
            try:
                await self._until(functools.partial(_listens, process, port), "toxiproxy", process)
                break
            except StackError:
                if not left or "in use" not in self.log_of("toxiproxy"):
                    raise
        self.toxiproxy = Toxiproxy("127.0.0.1", port)
        await self.toxiproxy.ask_version()
        self.versions.toxiproxy = f"{self.toxiproxy.version} ({'server' if binary else 'stand-in'})"

    async def _start_processor(self) -> None:
        argv = [sys.executable, "-P", "-m", "fakes.processor", "--ledger", str(self.directory / "ledger.sqlite")]
        for role in ROLES:
            argv += ["--payment", f"{role}=127.0.0.1:0"]
        process = await self._spawn("processor", [*argv, "--control", "127.0.0.1:0"])
        log = self.directory / "processor.log"
        ready: list[dict[str, object]] = []

        async def speaks() -> bool:
            for line in log.read_text(errors="replace").splitlines() if log.exists() else []:
                if line.startswith("{") and line.endswith("}"):
                    ready.append(json.loads(line))
            return bool(ready)

        await self._until(speaks, "processor", process)
        payment = ready[0]["payment"]
        assert isinstance(payment, dict)
        addresses = {role: _address(url) for role, url in payment.items()}
        self.processor = ProcessorControl(addresses, str(ready[0]["control"]), str(ready[0]["boot"]))
        await self.processor.health()

    async def _start_postgres(self) -> None:
        """Where no PostgreSQL can be had the run goes on without: what needs it is not applicable, with the reason."""
        postgres = Postgres()
        try:
            await postgres.start(self._keeper, self.directory)
        except ServerUnavailable as error:
            self.no_postgres = str(error)
            return
        (self.directory / ALSO_REMOVE).write_text(f"{postgres.home}\n")
        self.postgres = postgres
        self.advisory.serve(postgres)
        self.versions.postgres = postgres.version

    async def _spawn(self, name: str, argv: list[str]) -> Process:
        process = await self._keeper.spawn(argv, env=python_env(), output=self.directory / f"{name}.log")
        self._processes[name] = process
        return process

    async def _until(self, ready: Callable[[], object], name: str, process: Process) -> None:
        """Polls until ready() is true. Raises StackError when the process ends or time runs out."""

        async def check() -> bool:
            if process.returncode is not None:
                raise StackError(f"{name} ended with status {process.returncode} while starting:\n{self.log_of(name)}")
            outcome = ready()
            return bool(await outcome if asyncio.iscoroutine(outcome) else outcome)

        try:
            await AsyncRetrying(
                retry=retry_if_result(lambda done: not done),
                wait=wait_fixed(0.01),
                stop=stop_after_delay(_START_TIMEOUT_S),
            )(check)
        except RetryError as error:
            raise StackError(f"{name} was not ready within {_START_TIMEOUT_S:.0f} s:\n{self.log_of(name)}") from error

    def log_of(self, name: str) -> str:
        """The end of a server's output."""
        log = self.directory / f"{name}.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else "(no output)"

    def server_pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items() if process.returncode is None}

    def died(self) -> str | None:
        """The shared server that is gone although nobody broke it, with its status; None when all run."""
        for name, process in self._processes.items():
            if process.returncode is not None:
                return f"{name} ended with status {process.returncode}"
        return None

    async def stop(self) -> None:
        """Closes the harness's own connections; the keeper ends the servers."""
        await self.advisory.stop()
        await self.redis.disconnect()
        await self.beside.stop()
        if self.postgres is not None:
            await self.postgres.stop()
        self.processor.close()
        self.toxiproxy.close()


def _listens(process: Process, port: int) -> bool:
    """Whether it is this server that listens there, and not another one's that took the port first."""
    return any(kernel.listens(pid, port) for pid in process.tree())


def _address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)
