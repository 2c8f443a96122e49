"""--harness-setup: the user's own preparation of each experiment (migrations, the invoice row).

It is started as a worker is: a callable is forked from a process that has imported it, a command is a program.
"""

from __future__ import annotations

import asyncio
import os

from harness.crew import Crew
from harness.output import Output
from harness.processes import HarnessError, kill_tree
from harness.subject import Job

SETUP_TIMEOUT_S = 60.0
SIDE_BY_SIDE = 2 * (os.cpu_count() or 1)
"""Setups that run at a time. An experiment has not begun yet when it is set up, so that it may wait; each may be an
interpreter that starts, and a hundred of those at once were measured to take a minute beside busy loops."""

_FLUSHES = (
    ". Other experiments are under way on the same Redis, so there is no FLUSHALL; FLUSHDB empties the database that "
    "this one has to itself, and that is empty already"
)


class SetupHook:
    """Runs the setup in a process of its own, with the job that it is to prepare for."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._words = f"{crew.subject.name} {crew.subject.shown}"
        self._turns = asyncio.Semaphore(SIDE_BY_SIDE)

    async def __call__(self, job: Job) -> None:
        """Raises HarnessError when it fails or takes too long."""
        async with self._turns:
            await self._run(job)

    async def _run(self, job: Job) -> None:
        output = Output(lambda _: None)
        try:
            try:
                process = await self._crew.start(job, output)
            except OSError as error:
                raise HarnessError(f"{self._words} cannot be started: {error}") from error
            output.started()
            status = await asyncio.wait_for(process.wait(), SETUP_TIMEOUT_S)
        except TimeoutError:
            await kill_tree(process, timeout_s=5)
            raise HarnessError(f"{self._words} did not end within {SETUP_TIMEOUT_S:.0f} s") from None
        finally:
            told = output.close()
        if status != 0:
            hint = _FLUSHES if "flushall" in told.lower() else ""
            raise HarnessError(f"{self._words} ended with status {status}{hint}:\n{told[-2000:]}")
