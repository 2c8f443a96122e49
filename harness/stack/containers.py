"""Redis servers in cells (containers that stay up), for the experiments that break them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness.stack import Address, StackError
from harness.stack.cells import Cell, Cells
from harness.stack.docker_engine import log_of
from harness.stack.redis import RedisServer

BASE_OPTIONS = (
    *("--protected-mode", "no"),
    *("--databases", "16"),
    *("--save", ""),
    *("--appendonly", "no"),
    *("--maxclients", "10000"),
    *("--hz", "50"),
    *("--loglevel", "warning"),
    *("--repl-diskless-sync-delay", "0"),  # no use in waiting for more replicas
)
"""As for the server that is shared; the options of an experiment come after these, and win."""


class ContainerRedis(RedisServer):
    """A server in a container, to be killed, paused, started again and cut off, on one port.

    Its data is in directory, on this host, where a fault may cut a file back while the server is down.
    """

    def __init__(self, cells: Cells, cell: Cell, options: Sequence[str], inside: Mapping[Address, Address]) -> None:
        super().__init__(*cell.address, own=True)
        self.directory = cell.data
        self._cells = cells
        self._cell = cell
        self._options = tuple(options)
        self._inside = inside

    async def start(self, *options: str) -> None:
        """Starts the server, on its port; options replace those given at first. Raises StackError."""
        self._options = options or self._options
        await self._cell.serve([*BASE_OPTIONS, *_inside(self._options, self._inside)])
        try:
            await self.ready()
        except StackError as error:
            log = await self._cell.engine(log_of, self._cell.container)
            raise StackError(f"{error}\nits log ends:\n{log}") from error

    async def kill(self) -> None:
        """kill -9, and waits for the end. Raises StackError when it had ended before."""
        await self._cell.kill()
        await self.disconnect()

    async def restart(self, *options: str, while_down: Callable[[], None] | None = None) -> None:
        """kill -9 and start again; while_down runs in between (to cut a file back, say)."""
        await self.kill()
        if while_down is not None:
            while_down()
        await self.start(*options)

    async def pause(self) -> None:
        """Freezes all of its processes (the freezer cgroup): connections stay, nothing answers."""
        self._cell.spoiled = True
        await self._cell.engine(self._cell.container.pause)

    async def unpause(self) -> None:
        await self._cell.engine(self._cell.container.unpause)

    async def cut_off(self) -> None:
        """Disconnects it from its network: established connections end, new ones are refused or reset."""
        self._cell.spoiled = True
        await self._cell.engine(lambda: self._cell.network().disconnect(self._cell.container))
        await self.disconnect()

    async def reconnect(self) -> None:
        """Connects it to its network again, on the same port of this host."""
        await self._cell.engine(lambda: self._cell.network().connect(self._cell.container))
        await self.ready()

    async def state(self) -> str:
        """The engine's own account of the container: running, paused, exited, ..."""
        await self._cell.engine(self._cell.container.reload)
        status: str = self._cell.container.status
        return status

    async def remove(self) -> None:
        """Ends it with all it had; its container is for another one."""
        await self.disconnect()
        await self._cells.give_back(self._cell)


def _inside(options: Sequence[str], inside: Mapping[Address, Address]) -> list[str]:
    """The options with `--replicaof HOST PORT` as the containers know that server."""
    seen = list(options)
    for index, option in enumerate(seen[:-2]):
        if option == "--replicaof" and (there := inside.get((seen[index + 1], int(seen[index + 2])))):
            seen[index + 1 : index + 3] = [there[0], str(there[1])]
    return seen
