"""Start, freeze, thaw, kill and reap: the processes of a run, none of which is ever left behind.

All of them are descendants of the keeper (harness/keeper.py), which outlives whatever kills the run.
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from harness import kernel
from harness.history import now_ns
from harness.spawning import Message, encode
from harness.stack.accounts import roomy_memory

_OUTPUT_LIMIT = 256 * 1024
"""How much of a worker's output is kept, in bytes: its beginning and its end."""


class HarnessError(Exception):
    """The harness itself failed: nothing can be concluded from what it measured. Never a verdict about a subject."""


class Process:
    """One process started by the harness, by its pid; returncode is negative for a signal, None while it runs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.started_ns = now_ns()
        self.ended_ns: int | None = None
        self.run_delay_ns = 0
        self.returncode: int | None = None
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(self, status: int, run_delay_ns: int | None) -> None:
        self.returncode = status
        self.ended_ns = now_ns()
        self.run_delay_ns = run_delay_ns or 0
        if not self._ended.done():
            self._ended.set_result(status)

    async def wait(self) -> int:
        """The exit status, once it has ended."""
        return await asyncio.shield(self._ended)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signals this process alone."""
        if self.returncode is None:
            kernel.send_signal([self.pid], number)

    def tree(self) -> list[int]:
        """This process and all its descendants; empty once it has ended."""
        return kernel.tree(self.pid) if self.returncode is None else []


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


async def freeze(process: Process, *, timeout_s: float) -> list[int]:
    """Stops a process and all its descendants and waits until the kernel shows every thread stopped.

    Returns the pids. Descendants born while it works are stopped too. Raises HarnessError when time runs out.
    """
    deadline = now_ns() + int(timeout_s * 1e9)
    pids: list[int] = []
    while True:
        seen = process.tree()
        kernel.send_signal([pid for pid in seen if pid not in pids], signal.SIGSTOP)
        settled = seen == pids
        pids = seen
        if settled and kernel.all_stopped(pids):
            return pids
        if now_ns() > deadline:
            raise HarnessError(f"processes {pids} did not stop within {timeout_s:.3f} s of SIGSTOP")
        await asyncio.sleep(0 if not settled else 0.0005)


def thaw(process: Process) -> None:
    """Lets a frozen process and all its descendants run again."""
    kernel.send_signal(process.tree(), signal.SIGCONT)


async def kill_tree(process: Process, *, timeout_s: float) -> list[int]:
    """Kills a process and all its descendants at one moment: stopped first, so that none acts between two signals.

    Returns the pids. Raises HarnessError when the kernel still shows one after timeout_s.
    """
    pids = await freeze(process, timeout_s=timeout_s)
    kernel.send_signal(pids, signal.SIGKILL)
    deadline = now_ns() + int(timeout_s * 1e9)
    while not kernel.all_gone(pids):
        if now_ns() > deadline:
            raise HarnessError(f"processes {pids} still there {timeout_s:.3f} s after SIGKILL")
        await asyncio.sleep(0.0005)
    return pids


class Spawner:
    """The harness's end of the wire to a keeper or a zygote."""

    def __init__(self, sock: socket.socket, who: str) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._who = who
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[int]] = {}
        self._running: dict[int, Process] = {}
        self._buffer = bytearray()
        self._early_exits: dict[int, Message] = {}
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
        asked: asyncio.Future[int] = self._loop.create_future()
        self._asked[number] = asked
        await self._send(encode({**message, "id": number}), fds)
        pid = await asked
        process = Process(pid)
        self._running[pid] = process
        if (early := self._early_exits.pop(pid, None)) is not None:
            self._exit(early)
        return process

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
            if message["exit"] in self._running:
                self._exit(message)
            else:
                self._early_exits[message["exit"]] = message
        elif "id" in message:
            asked = self._asked.pop(message["id"])
            if asked.done():
                return
            if "pid" in message:
                asked.set_result(message["pid"])
            else:
                asked.set_exception(OSError(message["error"]))
        else:
            self._greeting.set_result(message)

    def _exit(self, message: Message) -> None:
        self._running.pop(message["exit"]).end(message["status"], message["run_delay_ns"])

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


def python_env() -> dict[str, str]:
    """The caller's environment, with this harness importable."""
    root = str(Path(__file__).parents[1])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root if not path else f"{root}{os.pathsep}{path}"}


class Output:
    """A worker's stdout and stderr, read as it comes: JSON events to a callback, everything to the log."""

    def __init__(self, on_event: Callable[[dict[str, object]], None]) -> None:
        self.read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.write_fd, True)
        self._on_event = on_event
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = 0
        self._line = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.read_fd, self.drain)

    def started(self) -> None:
        """The writing end belongs to the worker alone from now on."""
        os.close(self.write_fd)
        self.write_fd = -1

    def drain(self) -> None:
        """Takes what is there."""
        while True:
            try:
                data = os.read(self.read_fd, 1 << 16)
            except (BlockingIOError, OSError):
                return
            if not data:
                self._loop.remove_reader(self.read_fd)
                return
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        room = _OUTPUT_LIMIT // 2 - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room < len(data) else b""
        if (over := len(self._tail) - _OUTPUT_LIMIT // 2) > 0:
            self._cut += over
            del self._tail[:over]
        self._line += data
        *lines, rest = self._line.split(b"\n")
        self._line = rest[-_OUTPUT_LIMIT:]
        for line in lines:
            if line.lstrip().startswith(b"{"):
                try:
                    said = json.loads(line)
                except ValueError:
                    continue
                if isinstance(said, dict) and isinstance(said.get("event"), str):
                    self._on_event(said)

    def close(self) -> str:
        """Ends the reading and returns the log."""
        self.drain()
        self._loop.remove_reader(self.read_fd)
        os.close(self.read_fd)
        if self.write_fd >= 0:
            os.close(self.write_fd)
        middle = f"\n[... {self._cut} bytes left out ...]\n".encode() if self._cut else b""
        return (bytes(self._head) + middle + bytes(self._tail)).decode("utf-8", "replace")
