"""--harness-setup: the user's own preparation of each experiment (migrations, the invoice row)."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Awaitable, Callable

from harness.launcher import Keeper
from harness.output import Output
from harness.processes import HarnessError, kill_tree, python_env

SETUP_TIMEOUT_S = 60.0
SIDE_BY_SIDE = 2 * (os.cpu_count() or 1)
"""Setups that run at a time. An experiment has not begun yet when it is set up, so that it may wait; each may be an
interpreter that starts, and a hundred of those at once were measured to take a minute beside busy loops."""

_CALL = (
    "import os, sys; sys.path.insert(0, os.getcwd()); from harness.zygote import load; "
    "from harness.subject import Job; load(sys.argv[1])(Job.from_env())"
)


Setup = Callable[[Keeper, dict[str, str]], Awaitable[None]]
"""Called with the contract's environment before each experiment. Raises HarnessError."""


def setup_hook(value: str | None, cwd: str) -> Setup | None:
    """A function that runs the setup in a process of its own, with the contract's environment, or None."""
    if value is None:
        return None
    callable_ = re.fullmatch(r"[\w.]+:[\w.]+", value) is not None
    argv = [sys.executable, "-P", "-c", _CALL, value] if callable_ else shlex.split(value)
    base = python_env() if callable_ else dict(os.environ)
    turns = asyncio.Semaphore(SIDE_BY_SIDE)

    async def setup(keeper: Keeper, env: dict[str, str]) -> None:
        async with turns:
            await prepared(keeper, env)

    async def prepared(keeper: Keeper, env: dict[str, str]) -> None:
        output = Output(lambda _: None)
        try:
            try:
                process = await keeper.spawn(argv, cwd=cwd, env={**base, **env}, fds={"output": output.write_fd})
            except OSError as error:
                raise HarnessError(f"--harness-setup {value} cannot be started: {error}") from error
            output.started()
            status = await asyncio.wait_for(process.wait(), SETUP_TIMEOUT_S)
        except TimeoutError:
            await kill_tree(process, timeout_s=5)
            raise HarnessError(f"--harness-setup {value} did not end within {SETUP_TIMEOUT_S:.0f} s") from None
        finally:
            told = output.close()
        if status != 0:
            raise HarnessError(f"--harness-setup {value} ended with status {status}:\n{told[-2000:]}")

    return setup
