"""Whatever ends a run, nothing remains of it: no process, frozen or not, no socket, no directory, no shared memory.

The subjects do what makes that hard: their workers leave descendants behind that have a session of their own and
ignore every signal that can be ignored, and the run is ended in the moment in which A stands frozen.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from core.runs import CLONE, Ran, Run, until

from harness import kernel
from leftovers.traces import Traces

PATIENCE_S = 120.0
FROZEN_FOR_LONG = ("--harness-ttl", "10000")
"""A is frozen for more than one lease: nobody is so slow that the run is over before it is ended in that moment."""
SWEPT_WITHIN_S = 40.0
"""The keeper gives killing and reaping 10 s; the rest is for a machine that has other things to do."""
AT_ONCE = 3
UNFINISHED = ("Task was destroyed", "was never retrieved", "was never awaited", "Exception ignored in")
"""What Python says of a loop, a task or a thread that was left where it was."""

LEAVES = "import os, signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; time.sleep(600)"

CALLABLE = f'''
"""Workers that leave processes behind: in a session of its own, and orphaned by a second fork."""
import os, subprocess, sys
from examples.redis_lock import billing
from tests.sound import redis_py_lock_with_key

def naive(job):
    leave_processes()
    billing.charge_invoice(job)

def sound(job):
    leave_processes()
    redis_py_lock_with_key.run(job)

def leave_processes():
    subprocess.Popen([sys.executable, "-S", "-c", {LEAVES!r}], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-S", "-c", {LEAVES!r}])
        os._exit(0)
    os.wait()
'''

COMMAND = f"""
setsid {sys.executable} -S -c '{LEAVES}' &
( trap '' HUP; {sys.executable} -S -c '{LEAVES}' & )
exec bash "$1"
"""

FULL_DISK = '''
"""Out of disk: what is written to a file cannot be brought to it any more."""
import errno, os

def fsync(_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

os.fsync = fsync
'''


@dataclass
class Ending:
    """One way in which a run ends: what is done to it while A is frozen, what it says then, and whether it is green."""

    kind: str
    ends: Callable[[Run, Traces], None]
    flags: tuple[str, ...] = ()
    says: str = ""
    green: bool = False


def leave_alone(_: Run, __: Traces) -> None:
    pass


def to_the_group(number: int, again_after_s: float | None = None) -> Callable[[Run, Traces], None]:
    """As the terminal does it: to the foreground process group."""

    def send(run: Run, _: Traces) -> None:
        os.killpg(run.process.pid, number)
        if again_after_s is not None:
            time.sleep(again_after_s)  # how fast somebody presses a key is no condition to wait for
            os.killpg(run.process.pid, number)

    return send


def to_pytest(number: int) -> Callable[[Run, Traces], None]:
    return lambda run, _: os.kill(run.process.pid, number)


def to_an_xdist_worker(run: Run, traces: Traces) -> None:
    """To the first gateway of execnet, a Python that is told over its standard input what to do."""
    workers = [pid for pid in kernel.children(run.process.pid) if "exec(eval(sys.stdin" in traces.names.get(pid, "")]
    assert workers, f"no worker of pytest-xdist among {traces.names}"
    os.kill(workers[0], signal.SIGKILL)


ENDINGS = {
    "success, descendants of a callable": Ending("callable", leave_alone, says="Green:", green=True),
    "success, descendants of a command": Ending("command", leave_alone, says="Green:", green=True),
    "a failed test, descendants of a callable": Ending("callable", leave_alone, says="1 failed"),
    "a failed test, descendants of a command": Ending("command", leave_alone, says="1 failed"),
    "Ctrl-C": Ending("callable", to_the_group(signal.SIGINT), FROZEN_FOR_LONG, says="KeyboardInterrupt"),
    "Ctrl-C twice": Ending("command", to_the_group(signal.SIGINT, 0.05), FROZEN_FOR_LONG),
    "SIGTERM": Ending("command", to_pytest(signal.SIGTERM), FROZEN_FOR_LONG, says="SIGTERM"),
    "kill -9 of pytest, a callable": Ending("callable", to_pytest(signal.SIGKILL), FROZEN_FOR_LONG),
    "kill -9 of pytest, a command": Ending("command", to_pytest(signal.SIGKILL), FROZEN_FOR_LONG),
    "kill -9 of an xdist worker": Ending(
        "callable", to_an_xdist_worker, ("-n", "2", "--harness-ttl", "3000"), says="crashed"
    ),
    "kill -9 of the xdist controller": Ending("command", to_pytest(signal.SIGKILL), ("-n", "2", *FROZEN_FOR_LONG)),
    "out of disk": Ending("callable", leave_alone, ("-p", "full_disk"), says="No space left on device"),
}


@dataclass
class Ended:
    """A run that is over: what it printed, how many processes it had, how many were frozen, and what is left of it."""

    ran: Ran
    processes: int
    frozen: int
    left: list[str]
    report: list[str]


def carry_out(name: str, directory: Path) -> Ended:
    """Starts a run, ends it in its way while A is frozen, waits for it to be swept, counts."""
    ending = ENDINGS[name]
    directory.mkdir()
    (directory / "leaky.py").write_text(CALLABLE)
    (directory / "leaky.sh").write_text(COMMAND)
    (directory / "full_disk.py").write_text(FULL_DISK)
    command = CLONE / ("tests/sound/worker.sh" if ending.green else "examples/shell/worker.sh")
    subject = (
        ("--harness-subject", f"leaky:{'sound' if ending.green else 'naive'}")
        if ending.kind == "callable"
        else ("--harness-worker", f"bash {directory}/leaky.sh {command}")
    )
    traces = Traces()
    env = {**traces.env, "PYTHONPATH": os.pathsep.join((str(CLONE), str(directory)))}
    wanted = ("--pyargs", "scenarios", "-k", "freeze and charge-request", *subject, *ending.flags)
    with Run(*wanted, cwd=directory, report=directory / "reports", env=env) as run:
        root = run.process.pid
        frozen: list[int] = []

        def seen() -> bool:
            traces.look(root)
            frozen[:] = traces.frozen()
            return bool(frozen) or run.process.poll() is not None

        until(seen, PATIENCE_S)
        traces.look(root)
        traces.look_at_sockets()
        ending.ends(run, traces)
        ran = run.end(PATIENCE_S)
        until(lambda: not traces.left(), SWEPT_WITHIN_S)
        left = traces.left()
    reports = directory / "reports"
    return Ended(ran, len(traces.pids), len(frozen), left, sorted(os.listdir(reports)) if reports.is_dir() else [])


class Runs:
    """The runs that were asked for so far, a few under way at once."""

    def __init__(self, pool: ThreadPoolExecutor, place: Path) -> None:
        self._pool = pool
        self._place = place
        self._asked: dict[str, Future[Ended]] = {}

    def ask(self, name: str) -> Future[Ended]:
        if name not in self._asked:
            self._asked[name] = self._pool.submit(carry_out, name, self._place / str(len(self._asked)))
        return self._asked[name]

    def __getitem__(self, name: str) -> Ended:
        return self.ask(name).result()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Runs]:
    """How each run ended; those of the tests to come are started at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = Runs(pool, tmp_path_factory.mktemp("leftovers"))
        for item in request.session.items:
            if isinstance(item, pytest.Function) and item.function is test_nothing_is_left_after:
                runs.ask(str(item.callspec.params["name"]))
        yield runs


@pytest.mark.parametrize("name", ENDINGS)
def test_nothing_is_left_after(name: str, ended: Runs) -> None:
    run = ended[name]
    assert run.processes >= 10, f"the run never got to its servers and workers:\n{run.ran.out}"
    assert run.frozen, f"nobody was frozen when the run was ended:\n{run.ran.out}"
    assert run.left == []
    assert (run.ran.status == 0) is ENDINGS[name].green, run.ran.out
    assert ENDINGS[name].says in run.ran.out
    for complaint in UNFINISHED:
        assert complaint not in run.ran.out


def test_a_run_that_is_interrupted_says_so_in_its_results(ended: Runs) -> None:
    for name in ("Ctrl-C", "SIGTERM"):
        run = ended[name]
        assert run.ran.results is not None, run.ran.out
        assert run.ran.results["partial"] is True
    results = ended["a failed test, descendants of a callable"].ran.results
    assert results is not None
    assert results["partial"] is False


def test_out_of_disk_leaves_no_half_written_report(ended: Runs) -> None:
    run = ended["out of disk"]
    assert run.report == []
    assert run.ran.status == pytest.ExitCode.INTERNAL_ERROR


def test_the_count_itself_finds_what_is_left() -> None:
    """A mark that finds nothing would prove nothing."""
    import subprocess

    traces = Traces()
    env = {**os.environ, **traces.env}
    with subprocess.Popen([sys.executable, "-S", "-c", LEAVES], env=env, start_new_session=True) as process:
        assert until(lambda: process.pid in traces.look(), 30)
        os.kill(process.pid, signal.SIGSTOP)
        assert until(lambda: traces.frozen() == [process.pid], 30)
        assert any("T" in line and str(process.pid) in line for line in traces.left())
        process.kill()
        process.wait()
        assert traces.left() == []
