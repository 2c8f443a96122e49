"""Servers of somebody else's, with data in them that is none of the harness's business."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from harness.stack import free_port
from harness.stack.redis import find_server

PASSWORD = "s3cret/with@odd:signs"
Start = Callable[..., "Server"]


class Server:
    """A running server, and a client of its owner's."""

    def __init__(self, port: int, password: str | None) -> None:
        self.port = port
        self.password = password

    def client(self, database: int = 0) -> redis.Redis:
        return redis.Redis(port=self.port, db=database, password=self.password, decode_responses=True)

    def everything(self) -> dict[str, str]:
        """All that it holds: database/key -> value."""
        held: dict[str, str] = {}
        for name in self.client().info("keyspace"):
            client = self.client(int(name.removeprefix("db")))
            for key in map(str, client.keys("*")):
                held[f"{name}/{key}"] = str(client.get(key))
        return held


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers with options as on redis-server's command line."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(*options: str, password: str | None = None) -> Server:
        port = free_port()
        login = ["--requirepass", password] if password else []
        argv = [str(find_server()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", *login, *options]
        running.append(subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL))
        server = Server(port, password)

        @retry(retry=retry_if_exception_type(redis.ConnectionError), wait=wait_fixed(0.01), stop=stop_after_delay(20))
        def up() -> None:
            server.client().ping()

        up()
        return server

    yield begin
    for process in running:
        process.kill()
        process.wait()
