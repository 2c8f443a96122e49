"""Has processes started: by the keeper (harness/keeper.py), or forked by a zygote (harness/zygote.py).

All processes of a run are descendants of its keeper, which outlives whatever kills the run.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from harness import kernel
from harness.processes import HarnessError, Process, python_env
from harness.spawning import Message, encode
from harness.stack.accounts import roomy_memory


class Launcher(Protocol):
    """Whatever can start a server process: the keeper, or a plain stand-in in tests."""

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        output: Path | None = None,
        user: tuple[int, int] | None = None,
        farewell: int | None = None,
    ) -> Process: ...


class Spawner:
    """The harness's end of the wire to a keeper or a zygote."""

    def __init__(self, sock: socket.socket, who: str) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._who = who
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Process]] = {}
        self._running: dict[int, Process] = {}
        self._buffer = bytearray()
        self._greeting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._readable)

    async def greeting(self) -> Message:
        """The first thing a zygote says. Raises HarnessError when it ends without a word."""
        return await asyncio.shield(self._greeting)

    async def start(self, message: Message, fds: Sequence[int] = ()) -> Process:
        """Has one process started. Raises OSError when that fails, HarnessError when the spawner is gone."""
        if self.gone.is_set():
            raise HarnessError(f"the {self._who} process is gone (killed?): nothing can be started any more")
        number = next(self._ids)
        asked: asyncio.Future[Process] = self._loop.create_future()
        self._asked[number] = asked
        await self._send(encode({**message, "id": number}), fds)
        return await asked

    @property
    def running(self) -> list[Process]:
        return list(self._running.values())

    async def _send(self, data: bytes, fds: Sequence[int]) -> None:
        view = memoryview(data)
        while view:
            try:
                sent = socket.send_fds(self._sock, [view], fds)
            except BlockingIOError:
                await asyncio.sleep(0.001)
                continue
            except OSError as error:
                raise HarnessError(f"the {self._who} process is gone: {error}") from error
            view, fds = view[sent:], ()

    def _readable(self) -> None:
        try:
            data = self._sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            message = json.loads(self._buffer[:end])
            del self._buffer[: end + 1]
            self._dispatch(message)

    def _dispatch(self, message: Message) -> None:
        if "exit" in message:
            self._running.pop(message["exit"]).end(message["status"], message["run_delay_ns"])
        elif "id" in message:
            asked = self._asked.pop(message["id"])
            if "pid" in message:  # known from here on: its end may be the next thing that is told
                process = self._running[message["pid"]] = Process(message["pid"])
                if not asked.done():
                    asked.set_result(process)
            elif not asked.done():
                asked.set_exception(OSError(message["error"]))
        else:
            self._greeting.set_result(message)

    def _lost(self) -> None:
        self._loop.remove_reader(self._sock)
        self.gone.set()
        error = HarnessError(f"the {self._who} process ended unexpectedly")
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(error)
        self._asked.clear()
        if not self._greeting.done():
            self._greeting.set_exception(error)
            self._greeting.exception()
        for process in self.running:
            kernel.send_signal([process.pid], signal.SIGKILL)
            process.end(-signal.SIGKILL, None)
        self._running.clear()

    def close(self) -> None:
        if not self.gone.is_set():
            self._loop.remove_reader(self._sock)
        self._sock.close()


class Keeper(Spawner):
    """The keeper of this run: start it with `await Keeper.launch()`; close() makes it kill all it has started."""

    process: subprocess.Popen[bytes]
    directory: Path

    @classmethod
    async def launch(cls) -> Self:
        """Starts the keeper and the run's own directory, which the keeper removes when it ends."""
        directory = Path(tempfile.mkdtemp(prefix="lockproof-", dir=roomy_memory()))
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _KEEPER, str(Path(__file__).parents[1]), str(directory)],
                stdin=theirs.fileno(),
                start_new_session=True,
            )
        keeper = cls(ours, "keeper")
        keeper.process = process
        keeper.directory = directory
        return keeper

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        output: Path | None = None,
        user: tuple[int, int] | None = None,
        farewell: int | None = None,
        fds: Mapping[str, int] | None = None,
    ) -> Process:
        """Starts a program in a process group of its own.

        env defaults to this process's; output is a file for stdout and stderr together; user is (uid, gid) to drop to;
        farewell is the signal it gets, for a second, before it is killed at the end of the run; fds may carry "stdin"
        and "output". Raises OSError when the program cannot be started.
        """
        fds = fds or {}
        return await self.start(
            {
                "argv": list(argv),
                "env": dict(os.environ if env is None else env),
                "cwd": cwd,
                "output": None if output is None else str(output),
                "user": user,
                "farewell": farewell,
                "fds": list(fds),
            },
            list(fds.values()),
        )

    async def zygote(self, specs: Sequence[str], *, cwd: str) -> tuple[Spawner, Message]:
        """Starts a zygote that has imported the given subjects; returns its wire and what it noticed."""
        ours, theirs = socket.socketpair()
        log = self.directory / f"zygote-{next(self._ids)}.log"
        with theirs:
            await self.spawn(
                [sys.executable, "-P", "-m", "harness.zygote", *specs],
                env=python_env(),
                cwd=cwd,
                output=log,
                fds={"stdin": theirs.fileno()},
            )
        spawner = Spawner(ours, f"zygote of {', '.join(specs)}")
        return spawner, await spawner.greeting()

    def shut_down(self, timeout_s: float = 15.0) -> None:
        """Ends the keeper and with it everything it started; returns when it has. Blocking."""
        self.close()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)  # of a keeper that was killed before it could


_KEEPER = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from harness.keeper import main; main()"  # -S: no site-packages
)
