"""Starting and ending one server, and asking it things over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import tenacity

import fakes

Kind = Literal["stand-in", "real"]

KINDS: tuple[Kind, ...] = ("stand-in", "real")

REQUEST_TIMEOUT_S = 20.0
"""Shorter than the 25 s after which Toxiproxy answers 503 by itself: a hang shows as a hang."""

_START_S = 20.0


@dataclass(frozen=True)
class Answer:
    """header names in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Server:
    """A running server. call() is safe from any thread: each request has a connection of its own."""

    kind: Kind
    port: int
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def call(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        """body: bytes and text go as they are, anything else as JSON."""
        data = body if body is None or isinstance(body, bytes | str) else json.dumps(body)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_TIMEOUT_S)
        try:
            connection.request(method, path, data.encode() if isinstance(data, str) else data, dict(headers or {}))
            response = connection.getresponse()
            received = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, response.read(), received)
        finally:
            connection.close()

    def create(self, name: str, upstream: str = "127.0.0.1:1", **more: object) -> Any:
        """A new proxy on a free port, as the server describes it."""
        answer = self.call("POST", "/proxies", {"name": name, "listen": "127.0.0.1:0", "upstream": upstream, **more})
        assert answer.status == 201, answer
        return answer.json


def program(kind: Kind) -> list[str]:
    """The command that starts a server of this kind. Skips the test when there is none."""
    if kind == "stand-in":
        return [sys.executable, "-m", "fakes.toxiproxy"]
    found = shutil.which(os.environ.get("TOXIPROXY_SERVER") or "toxiproxy-server")
    if found is None:
        pytest.skip("no real Toxiproxy: TOXIPROXY_SERVER is not set and toxiproxy-server is not on PATH")
    return [found]


def cli_program() -> str:
    """toxiproxy-cli. Skips the test when there is none."""
    found = shutil.which(os.environ.get("TOXIPROXY_CLI") or "toxiproxy-cli")
    if found is None:
        pytest.skip("no toxiproxy-cli: TOXIPROXY_CLI is not set and toxiproxy-cli is not on PATH")
    return found


@contextmanager
def running(kind: Kind, *flags: str) -> Iterator[Server]:
    """A server on a free port of 127.0.0.1, ended and reaped on the way out."""
    command = program(kind)
    server = _started(kind, command, flags)
    try:
        yield server
    finally:
        _end(server.process)


def free_port() -> int:
    """Outside the range that port 0 is served from, so that nobody is given it before the server has it."""
    while True:
        port = random.randrange(20_000, 32_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port


class _Taken(Exception):
    """Somebody else got the port in between, and may even have answered."""


@tenacity.retry(retry=tenacity.retry_if_exception_type(_Taken), stop=tenacity.stop_after_attempt(3), reraise=True)
def _started(kind: Kind, command: list[str], flags: tuple[str, ...]) -> Server:
    port = free_port()
    with ExitStack() as undo:
        process = subprocess.Popen(
            [*command, "-host", "127.0.0.1", "-port", str(port), *flags],
            stdout=subprocess.DEVNULL,
            cwd=Path(str(fakes.__file__)).parents[1],
        )
        undo.callback(_end, process)
        server = Server(kind, port, process)
        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(OSError),
            wait=tenacity.wait_fixed(0.02),
            stop=tenacity.stop_after_delay(_START_S),
            reraise=True,
        ):
            with attempt:
                answer = server.call("GET", "/version") if process.poll() is None else None
                if answer is None or process.poll() is not None or b'"version"' not in answer.body:
                    raise _Taken(f"{command} did not get port {port}")
        undo.pop_all()
    return server


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
