"""Cells: containers that stay up, in which one Redis server after another is started, broken and started again.

To start a container takes half a second, and longer beside others: most of a lease, so that a lock that survives its
server in a file would have run out before it could be asked for. To start the server in it takes 10 ms, as it does on a
machine. The first process of a cell is a shell that does what it is told through a pipe.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import docker.errors
from docker import DockerClient
from docker.models.containers import Container
from docker.models.networks import Network

from harness.stack import PORT_ATTEMPTS, Address, StackError, free_port
from harness.stack.docker_engine import ENGINE_ERRORS, OWNER, log_of

T = TypeVar("T")

PORT = 6379
MOST_AT_ONCE = 1
"""How many containers are started side by side: more make each of them slower, and the experiments beside them."""

_NOBODY = 65534
_ANSWER_TIMEOUT_S = 20.0
_SHELL = """\
exec 3<>/cell/commands 4<>/cell/answers
echo ready >&4
while read -r command <&3; do
  case $command in
  start) redis-server /cell/redis.conf 3<&- 4<&- & pid=$!; echo started >&4 ;;
  kill) kill -9 "$pid"; wait "$pid"; echo "ended $?" >&4 ;;
  esac
done
"""
_KILLED = f"ended {128 + 9}"


@dataclass(frozen=True, slots=True)
class Site:
    """Where containers of a run go: the engine, the image under test, the network, and whose they are."""

    client: DockerClient
    image: str
    network: str
    owner: str


class Cell:
    """One container on one port of this host. data is its servers' directory, on this host.

    What tells it what to do is in a directory that it cannot change.
    """

    def __init__(self, site: Site, name: str, directory: Path) -> None:
        self.name = name
        self.data = directory / "data"
        self.port = 0
        self.spoiled = False
        """Something was done to the container itself: it is used no more."""
        self._site = site
        self._orders = directory / "cell"
        self._container: Container | None = None
        self._files: list[int] = []
        self._serving = False

    @property
    def address(self) -> Address:
        return "127.0.0.1", self.port

    @property
    def inside(self) -> Address:
        """Where the other containers reach it."""
        return self.name, PORT

    @property
    def container(self) -> Container:
        if self._container is None:
            raise StackError(f"{self.name} was never started")
        return self._container

    async def open(self) -> None:
        """Starts the container. Raises StackError."""
        uid, gid = self._lay_out()
        self._files = [os.open(self._orders / name, os.O_RDWR | os.O_NONBLOCK) for name in ("commands", "answers")]
        await self.engine(self._start, uid, gid)
        await self._answer()

    async def serve(self, options: Sequence[str]) -> None:
        """Starts a server with these options, as on redis-server's command line. Raises StackError."""
        (self._orders / "redis.conf").write_text(_configuration(options))
        await self._tell("start")
        self._serving = True

    async def kill(self) -> None:
        """kill -9 of the server, and waits for its end. Raises StackError."""
        if not self._serving:
            return
        self._serving = False
        if (answer := await self._tell("kill")) != _KILLED:
            log = await self.engine(log_of, self.container)
            raise StackError(f"the Redis server in {self.name} had ended by itself ({answer}); its log ends:\n{log}")

    async def clear(self) -> None:
        """Removes what the servers have left."""
        await self.kill()
        for path in list(self.data.iterdir()):
            if path.is_dir() and not path.is_symlink():
                await asyncio.to_thread(shutil.rmtree, path)
            else:
                path.unlink()

    async def close(self) -> None:
        """Removes the container with all it had."""
        self.let_go()
        if self._container is not None:
            await self.engine(self._container.remove, force=True, v=True)
            self._container = None

    def let_go(self) -> None:
        """Closes our ends of its pipes."""
        for file in self._files:
            os.close(file)
        self._files = []

    def network(self) -> Network:
        return self._site.client.networks.get(self._site.network)

    async def engine(self, call: Callable[..., T], *arguments: object, **options: object) -> T:
        """Has the Docker Engine do something. Raises StackError."""
        try:
            return await asyncio.to_thread(call, *arguments, **options)
        except ENGINE_ERRORS as error:
            raise StackError(f"the Docker Engine did not do its part for {self.name}: {error}") from error

    def _lay_out(self) -> tuple[int, int]:
        """Its directories and pipes; returns the account that it runs as: ourselves, or one without rights for root."""
        uid, gid = os.geteuid(), os.getegid()
        if uid == 0:
            uid = gid = _NOBODY
        for directory in (self.data, self._orders):
            directory.mkdir(parents=True)
            directory.chmod(0o755)
        for name in ("commands", "answers"):
            os.mkfifo(self._orders / name, 0o600)
        for path in (self.data, self._orders / "commands", self._orders / "answers"):
            os.chown(path, uid, gid)
        return uid, gid

    def _start(self, uid: int, gid: int) -> None:
        for left in reversed(range(PORT_ATTEMPTS)):
            self.port = free_port()
            self._container = container = self._create(uid, gid)
            try:
                container.start()
                return
            except docker.errors.APIError as error:
                container.remove(force=True, v=True)
                self._container = None
                taken = any(words in str(error) for words in ("port is already allocated", "address already in use"))
                if not taken or not left:
                    raise

    def _create(self, uid: int, gid: int) -> Container:
        return self._site.client.containers.create(
            self._site.image,
            ["-c", _SHELL],
            entrypoint=["sh"],
            name=self.name,
            user=f"{uid}:{gid}",
            network=self._site.network,
            ports={f"{PORT}/tcp": self.address},
            volumes={
                str(self.data): {"bind": "/data", "mode": "rw"},
                str(self._orders): {"bind": "/cell", "mode": "ro"},
            },
            working_dir="/data",
            labels={OWNER: self._site.owner},
            security_opt=["no-new-privileges:true"],
            cap_drop=["ALL"],
        )

    async def _tell(self, command: str) -> str:
        os.write(self._files[0], f"{command}\n".encode())
        return await self._answer()

    async def _answer(self) -> str:
        """The shell's next line. Raises StackError when it says nothing."""
        said = b""
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                while not said.endswith(b"\n"):
                    await _readable(self._files[1])
                    with suppress(BlockingIOError):
                        said += os.read(self._files[1], 100)
        except TimeoutError as error:
            log = await self.engine(log_of, self.container)
            raise StackError(f"{self.name} says nothing for {_ANSWER_TIMEOUT_S:.0f} s; its log ends:\n{log}") from error
        return said.decode().strip()


async def _readable(file: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def seen() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(file, seen)
    try:
        await ready
    finally:
        loop.remove_reader(file)


def _configuration(options: Sequence[str]) -> str:
    """redis.conf for what would be a command line: every --option begins a line, its values are quoted."""
    lines: list[str] = []
    for word in options:
        if word.startswith("--"):
            lines.append(word.removeprefix("--"))
        else:
            escaped = word.replace("\\", "\\\\").replace('"', '\\"')
            lines[-1] += f' "{escaped}"'
    return "".join(f"{line}\n" for line in lines)


class Cells:
    """Cells for a run: started when they are needed, a few at a time, and used again."""

    def __init__(self, site: Site, directory: Path, prefix: str) -> None:
        self._site = site
        self._directory = directory
        self._prefix = prefix
        self._idle: list[Cell] = []
        self._all: list[Cell] = []
        self._starting = asyncio.Semaphore(MOST_AT_ONCE)

    async def take(self) -> Cell:
        """A cell that nobody else has. Raises StackError."""
        if self._idle:
            return self._idle.pop()
        name = f"{self._prefix}-own-redis-{os.getpid()}-{len(self._all) + 1}"
        cell = Cell(self._site, name, self._directory / name)
        self._all.append(cell)
        async with self._starting:
            try:
                await cell.open()
            except BaseException:
                await cell.close()
                raise
        return cell

    async def give_back(self, cell: Cell) -> None:
        """Ends what runs in it and cleans it up, for the next one; a cell that cannot be is thrown away."""
        try:
            await cell.clear()
        except (StackError, OSError):
            cell.spoiled = True
        if cell.spoiled:
            await cell.close()
        else:
            self._idle.append(cell)

    def close(self) -> None:
        """Lets go of the cells; their containers go with the run's."""
        for cell in self._all:
            cell.let_go()
        self._all.clear()
        self._idle.clear()
