"""Processes of a run, and what is done to one with all its descendants: freeze, thaw, kill."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from harness import kernel
from harness.history import now_ns


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


def python_env() -> dict[str, str]:
    """The caller's environment, with this harness importable."""
    root = str(Path(__file__).parents[1])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root if not path else f"{root}{os.pathsep}{path}"}
