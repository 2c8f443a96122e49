"""The keeper: parent of every server and worker of a run, and the one that leaves nothing behind.

It starts what the harness asks for and does nothing else, so it outlives whatever kills the run. When its socket
closes (the run ended, or was killed with kill -9) it kills all its descendants, stopped ones included, removes the
run's directory and exits. Its children die with it (PR_SET_PDEATHSIG), should it be killed itself.

Run as: python -m harness.keeper DIRECTORY, the socket being standard input.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from harness import kernel
from harness.spawning import Channel, Message, serve

_SWEEP_S = 10.0
"""How long killing and reaping may take before the keeper gives up, in seconds."""


ALSO_REMOVE = "also-remove"
"""A file in the run's directory: one more directory to remove at the end on each line."""
_FAREWELL_S = 1.0
_farewells: dict[int, int] = {}


def start(message: Message, channel: Channel) -> int:
    """Starts one process: {"argv", "env", "cwd", "user": [uid, gid] | null, "fds": [name, ...], "output": path}.

    "farewell" is a signal to be sent first when everything ends.
    """
    fds = {name: channel.fds.popleft() for name in message["fds"]}
    output = fds.get("output")
    if output is None:
        target = message.get("output") or os.devnull
        output = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    stdin = fds.get("stdin", subprocess.DEVNULL)
    uid, gid = message.get("user") or (None, None)

    def before_exec() -> None:
        kernel.adopt_orphans()
        kernel.die_with_parent()
        signal.pthread_sigmask(signal.SIG_SETMASK, set())

    try:
        process = subprocess.Popen(
            message["argv"],
            env=message["env"],
            cwd=message.get("cwd"),
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
            user=uid,
            group=gid,
            extra_groups=[] if uid is not None else None,
            preexec_fn=before_exec,
        )
    except (ValueError, subprocess.SubprocessError) as error:
        raise OSError(str(error)) from error
    finally:
        os.close(output)
        if "stdin" in fds:
            os.close(fds["stdin"])
    process.returncode = 0  # reaped by serve(), not by subprocess
    if (farewell := message.get("farewell")) is not None:
        _farewells[process.pid] = farewell
    return process.pid


def say_farewell() -> None:
    """Lets servers that asked for it end by a signal of their own: PostgreSQL would leave shared memory behind."""
    deadline = time.monotonic() + _FAREWELL_S
    for pid, number in _farewells.items():
        if pid in kernel.children(os.getpid()):
            kernel.send_signal([pid], number)
    while time.monotonic() < deadline and not kernel.all_gone(list(_farewells)):
        time.sleep(0.002)


def kill_all() -> None:
    """Kills and reaps every descendant. New ones may be born while it runs, so it repeats until there are none."""
    say_farewell()
    deadline = time.monotonic() + _SWEEP_S
    while time.monotonic() < deadline:
        descendants = kernel.tree(os.getpid())[1:]
        if not descendants:
            return
        kernel.send_signal(descendants, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            continue
        time.sleep(0.002)


def _noted(directory: str) -> list[str]:
    """Directories of this run that had to be elsewhere (another account's server cannot work in ours)."""
    try:
        return (Path(directory) / ALSO_REMOVE).read_text().splitlines()
    except OSError:
        return []


def main() -> None:
    directory = sys.argv[1]
    kernel.adopt_orphans()
    channel = Channel(socket.socket(fileno=os.dup(0)))
    devnull = os.open(os.devnull, os.O_RDWR)
    os.dup2(devnull, 0)
    try:
        serve(channel, start)
    finally:
        kill_all()
        for place in [*_noted(directory), directory]:
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
