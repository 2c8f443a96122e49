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

    async def setup(keeper: Keeper, env: dict[str, str]) -> None:
        output = Output(lambda _: None)
        try:
            process = await keeper.spawn(argv, cwd=cwd, env={**base, **env}, fds={"output": output.write_fd})
            output.started()
            status = await asyncio.wait_for(process.wait(), SETUP_TIMEOUT_S)
        except OSError as error:
            raise HarnessError(f"--harness-setup {value} cannot be started: {error}") from error
        except TimeoutError:
            await kill_tree(process, timeout_s=5)
            raise HarnessError(f"--harness-setup {value} did not end within {SETUP_TIMEOUT_S:.0f} s") from None
        finally:
            told = output.close()
        if status != 0:
            raise HarnessError(f"--harness-setup {value} ended with status {status}:\n{told[-2000:]}")

    return setup
