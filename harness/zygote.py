"""The zygote: a warm process that has imported a Python subject and forks one worker for each delivery.

A fork costs a few milliseconds where a fresh interpreter with redis-py costs a few hundred. What a fork would get
wrong is found out at import and reported: threads that were started, sockets that were opened, variables of the
contract that were read. For such a subject a fresh interpreter is used instead.

Run as: python -m harness.zygote MODULE:CALLABLE [MODULE:CALLABLE ...], the socket being standard input.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import inspect
import os
import random
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import kernel
from harness.spawning import Channel, Message, serve
from harness.subject import ENVIRONMENT, Job


class _WatchedEnviron(os._Environ):  # type: ignore[type-arg]
    """os.environ, noting which variables of the contract are read while a subject is imported."""

    read: set[str] = set()  # noqa: RUF012 (one environment a process)

    def __getitem__(self, key: str) -> str:
        if key in ENVIRONMENT:
            self.read.add(key)
        value: str = super().__getitem__(key)
        return value

    def __contains__(self, key: object) -> bool:
        if key in ENVIRONMENT:
            self.read.add(str(key))
        return super().__contains__(key)


class NoSuchCallable(Exception):
    """The module imports, and has nothing by that name that can be called."""


def load(spec: str) -> Callable[[Job], Any]:
    """Imports MODULE:CALLABLE. Raises NoSuchCallable, and whatever the import raises."""
    module_name, _, path = spec.partition(":")
    target: Any = importlib.import_module(module_name)
    for name in path.split("."):
        if not hasattr(target, name):
            raise NoSuchCallable(f"{module_name} ({getattr(target, '__file__', target)}) has no {name}")
        target = getattr(target, name)
    if not callable(target):
        raise NoSuchCallable(f"{spec} is a {type(target).__name__}, not a callable")
    callable_target: Callable[[Job], Any] = target
    return callable_target


def source_of(target: Callable[..., Any]) -> str | None:
    """file:line of a callable, for annotations; None where Python does not know."""
    try:
        plain = inspect.unwrap(target)
        path = Path(inspect.getsourcefile(plain) or "")
        return f"{path}:{inspect.getsourcelines(plain)[1]}"
    except (OSError, TypeError):
        return None


def run(target: Callable[[Job], Any], job: Job) -> int:
    """Runs the subject as a worker process would and returns its exit status."""
    status = 0
    try:
        result = target(job)
        if inspect.iscoroutine(result):
            import asyncio

            asyncio.run(result)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 (the interpreter's own top level does just this)
        traceback.print_exc()
        status = 1
    return status


def _finish(status: int) -> None:
    """Ends a forked worker as the interpreter would have: wait for its threads, run its exit handlers, flush."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _become_worker(target: Callable[[Job], Any], message: Message, output: int) -> None:
    os.setpgid(0, 0)
    kernel.adopt_orphans()
    kernel.die_with_parent()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    atexit._clear()  # what the zygote registered is not the worker's
    for name in ENVIRONMENT:
        os.environ.pop(name, None)  # what the caller has in its own environment is no part of the job
    os.environ.update(message["env"])
    os.chdir(message["cwd"])
    random.seed()
    _finish(run(target, Job.from_env(os.environ)))


def _open_sockets() -> set[str]:
    return set(_socket_links())


def _socket_links() -> Iterator[str]:
    for fd in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if link.startswith("socket:"):
            yield link


def _prepare(specs: list[str]) -> tuple[dict[str, Callable[[Job], Any]], Message]:
    """Imports the subjects; returns them and what was noticed."""
    sockets = _open_sockets()
    os.environ.__class__ = _WatchedEnviron
    targets: dict[str, Callable[[Job], Any]] = {}
    try:
        for spec in specs:
            targets[spec] = load(spec)
    except NoSuchCallable as error:
        return {}, {"ready": False, "error": str(error)}
    except BaseException:  # noqa: BLE001 (an import may raise anything, SystemExit included)
        return {}, {"ready": False, "error": traceback.format_exc()}
    finally:
        os.environ.__class__ = os._Environ
    reasons = []
    if len(os.listdir("/proc/self/task")) > 1:
        reasons.append("importing it starts threads")
    if _open_sockets() - sockets:
        reasons.append("importing it opens sockets")
    if _WatchedEnviron.read:
        reasons.append("importing it reads " + ", ".join(sorted(_WatchedEnviron.read)))
    return targets, {
        "ready": True,
        "fork_unsafe": "; ".join(reasons) or None,
        "sources": {spec: source_of(target) for spec, target in targets.items()},
    }


def main() -> None:
    sock = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    kernel.adopt_orphans()
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    targets, report = _prepare(sys.argv[1:])
    channel = Channel(sock)
    channel.send(report)
    if not report["ready"]:
        return
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, every page of the heap

    def start(message: Message, channel: Channel) -> int:
        output = channel.fds.popleft()
        pid = os.fork()
        if pid == 0:
            try:
                channel.sock.close()
                _become_worker(targets[message["subject"]], message, output)
            finally:
                os._exit(70)
        os.close(output)
        return pid

    serve(channel, start)


def main_once() -> None:
    """The fresh interpreter: python -m harness.zygote --once MODULE:CALLABLE, the job in the environment."""
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    sys.exit(run(load(sys.argv[2]), Job.from_env(os.environ)))


if __name__ == "__main__":
    if sys.argv[1] == "--once":
        main_once()
    main()
