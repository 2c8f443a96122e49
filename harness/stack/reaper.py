"""python -m harness.stack.reaper LABEL: removes what a run has brought up, as soon as the run is over.

Waits for the end of its standard input, which the run holds open: closed when the run is done with its stack, and by
the kernel however else it ends. Has a session of its own, so that what is sent to the run's does not reach it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys

from harness.processes import python_env
from harness.stack.docker_engine import connect, remove_owned

_TIMEOUT_S = 90.0


class Reaper:
    """The run's end of the wire to its reaper."""

    def __init__(self, label: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.stack.reaper", label],
            env=python_env(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def reap(self) -> str | None:
        """Has everything removed and waits for it. What went wrong, or None. Blocking."""
        try:
            _, said = self._process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return f"the containers of this run could not be removed within {_TIMEOUT_S:.0f} s"
        if self._process.returncode == 0:
            return None
        return "the containers of this run could not be removed: " + said.decode(errors="replace")[-2000:]


def main() -> int:
    with contextlib.suppress(KeyboardInterrupt):
        sys.stdin.buffer.read()
    with contextlib.closing(connect()) as client:
        remove_owned(client, sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
