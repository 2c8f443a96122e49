"""A plain stand-in for the keeper: starts servers as children of the test, and knows which are left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.processes import Process


class PlainLauncher:
    """Starts processes with asyncio alone."""

    def __init__(self) -> None:
        self.started: list[Process] = []
        self._waiting: set[asyncio.Task[None]] = set()

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        output: Path | None = None,
        user: tuple[int, int] | None = None,
        farewell: int | None = None,
    ) -> Process:
        uid, gid = user or (None, None)
        with output.open("ab") if output is not None else open(os.devnull, "wb") as out:
            child = await asyncio.create_subprocess_exec(
                *argv,
                env=env,
                cwd=cwd,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                user=uid,
                group=gid,
                extra_groups=[] if uid is not None else None,
            )
        process = Process(child.pid)
        self.started.append(process)

        async def wait() -> None:
            process.end(await child.wait(), None)

        task = asyncio.create_task(wait())
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        return process

    def left(self) -> list[int]:
        """The processes that still run."""
        return [process.pid for process in self.started if process.returncode is None]

    async def kill_all(self) -> None:
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.gather(*self._waiting)
