"""Where the servers come from. A stack starts them, knows their addresses and stops them: local.py, compose.py."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from harness.advisory import AdvisoryWatch
    from harness.network.toxics import Toxiproxy
    from harness.stack.beside import Beside
    from harness.stack.postgres import Postgres
    from harness.stack.processor import ProcessorControl
    from harness.stack.redis import RedisServer
    from harness.stack.room import Room

Address = tuple[str, int]


class StackError(Exception):
    """A server of the stack could not be started, or is gone. Says which, why and what to do."""


PORT_ATTEMPTS = 5
"""Between our looking for a free port and a server's binding it somebody else may take it: then another is tried."""


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listened on a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@dataclass(slots=True)
class Versions:
    """What runs, for the report header and results.json."""

    redis: str = ""
    toxiproxy: str = ""
    postgres: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


class Stack(Protocol):
    """The servers that all experiments of a run share, and servers of their own for those that break them.

    redis and processor are there once start() has returned; postgres is None where there is none, with the reason in
    no_postgres. beside has the servers that only some experiments ask for. no_own_redis, no_second_postgres,
    no_refusals: why own_redis() or beside.second_postgres() cannot be, or a Toxiproxy that refuses or resets;
    databases: those of redis that experiments may have; room: how many of what there is.
    """

    kind: str
    versions: Versions
    directory: Path
    redis: RedisServer
    processor: ProcessorControl
    toxiproxy: Toxiproxy
    postgres: Postgres | None
    advisory: AdvisoryWatch
    no_postgres: str | None
    no_own_redis: str | None
    no_second_postgres: str | None
    no_refusals: str | None
    room: Room
    databases: Sequence[int]
    beside: Beside

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def died(self) -> str | None:
        """The shared server that is gone although nobody broke it, and how it ended; None when all run."""
        ...

    async def own_redis(self, *options: str) -> RedisServer:
        """A Redis server for one experiment, to be broken at will; options as on redis-server's command line."""
        ...

    def server_pids(self) -> dict[str, int]:
        """The processes whose starving would distort an experiment, by name; empty where they cannot be seen."""
        ...
