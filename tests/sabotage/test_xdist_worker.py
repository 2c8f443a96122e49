"""A worker of pytest-xdist is killed in a run that would be green: it is not green then, and the cause is named.

pytest-xdist itself gives the dead worker's tests to another one. Where it died between two tests, or before its first,
all of them are reported as passed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from core.runs import Ran, Run, until

from harness import kernel

PATIENCE_S = 120.0
SELECTED = (
    "scenarios/",
    "-k",
    "slow_charge and (before-commit or after-commit)",
    "--harness-variant",
    "idempotency-key",
)
XDIST, JOB = "exec(eval(sys.stdin", "harness.zygote"


def command(pid: int) -> str:
    """What a process was started as; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def descendants(pid: int) -> Iterator[int]:
    for child in kernel.children(pid):
        yield child
        yield from descendants(child)


def before_the_first_test(run: Run) -> bool:
    return len(xdist_workers(run)) == 2


def while_an_experiment_runs(run: Run) -> bool:
    """A worker of a subject is a child of the zygote that it was forked from, and has its name."""
    jobs = [pid for pid in descendants(run.process.pid) if JOB in command(pid)]
    return any(JOB in command(child) for pid in jobs for child in kernel.children(pid))


def xdist_workers(run: Run) -> list[int]:
    return [pid for pid in kernel.children(run.process.pid) if XDIST in command(pid)]


MOMENTS: Mapping[str, tuple[Callable[[Run], bool], tuple[str, ...]]] = {
    "before its first test": (before_the_first_test, ()),
    "while experiments run": (while_an_experiment_runs, ()),
    "and none takes its place": (while_an_experiment_runs, ("--max-worker-restart", "0")),
}


def carry_out(name: str, report: Path) -> tuple[bool, Ran]:
    """(whether the moment came, the run that a worker was killed in)."""
    moment, flags = MOMENTS[name]
    with Run(*SELECTED, "-n", "2", *flags, report=report) as run:
        until(lambda: moment(run) or run.process.poll() is not None, PATIENCE_S)
        workers = xdist_workers(run)
        for pid in workers[:1]:
            os.kill(pid, signal.SIGKILL)
        return bool(workers), run.end(PATIENCE_S)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Future[tuple[bool, Ran]]]]:
    """Every run, two side by side."""
    with ThreadPoolExecutor(2) as pool:
        yield {name: pool.submit(carry_out, name, tmp_path_factory.mktemp("reports")) for name in MOMENTS}


@pytest.mark.parametrize("name", MOMENTS)
def test_a_run_whose_worker_was_killed_is_not_green_and_says_why(
    name: str, runs: Mapping[str, Future[tuple[bool, Ran]]]
) -> None:
    killed, ran = runs[name].result()
    assert killed, ran.out
    assert ran.status != 0, ran.out
    assert "a pytest-xdist worker died while the run was under way: gw" in ran.out
    assert "Green:" not in ran.out
    assert "Not green:" in ran.out
    assert ran.results is not None, ran.out
    assert ran.results["partial"] is True
