"""pytest runs as a user starts them, in a process of their own, side by side where that saves time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLONE = Path(__file__).parents[2]
STALLED = "the machine stood still"
"""What an inconclusive verdict says when load, and not the subject, decided."""
MOST_TRIES = 5
TIMEOUT_S = 240.0


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that is over: its exit status, what it printed, its results.json (None where there is none)."""

    args: tuple[str, ...]
    status: int
    out: str
    results: dict[str, Any] | None

    def experiment(self, part: str) -> dict[str, Any]:
        """The one experiment whose id has this in it."""
        assert self.results is not None, self.out
        (found,) = [e for e in self.results["experiments"] if part in e["id"]]
        record: dict[str, Any] = found
        return record

    @property
    def stalled(self) -> bool:
        """Load has decided something: the run says nothing, and is worth another try."""
        told = (
            [] if self.results is None else [e for e in self.results["experiments"] if e["verdict"] == "inconclusive"]
        )
        return any(STALLED in e["reason"] for e in told) or (STALLED in self.out and self.status != 0)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what an outer pytest has put into it."""
    outer = ("PYTEST_", "COV_", "COLUMNS")
    return {key: value for key, value in os.environ.items() if not key.startswith(outer)} | dict(extra or {})


def command(args: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args]


class Run:
    """A run under way. Leaving the with block ends it, with everything that it started."""

    def __init__(
        self, *args: str, cwd: Path = CLONE, report: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.args = args
        self.report = report
        flags = [] if report is None else ["--harness-report", str(report)]
        self.process = subprocess.Popen(
            command([*args, *flags]),
            cwd=cwd,
            env=environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # the keeper ends what it has started
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def end(self, timeout_s: float = TIMEOUT_S) -> Ran:
        """Waits for the end. Raises subprocess.TimeoutExpired."""
        out, _ = self.process.communicate(timeout=timeout_s)
        results = None
        if self.report is not None and (self.report / "results.json").is_file():
            results = json.loads((self.report / "results.json").read_text())
        return Ran(self.args, self.process.returncode, out, results)


def run(
    *args: str,
    cwd: Path = CLONE,
    report: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Ran:
    """One run, to its end."""
    with Run(*args, cwd=cwd, report=report, env=env) as under_way:
        return under_way.end(timeout_s)


def conclusive(*args: str, cwd: Path = CLONE, report: Path, env: Mapping[str, str] | None = None) -> Ran:
    """One run, again where the machine stood still meanwhile; what comes then is the caller's to judge."""
    for attempt in range(MOST_TRIES):
        ran = run(*args, cwd=cwd, report=report / str(attempt), env=env)
        if not ran.stalled:
            break
    return ran


def side_by_side(commands: Sequence[Sequence[str]], *, report: Path, cwd: Path = CLONE) -> list[Ran]:
    """Several runs at once; those that load decided are run again one by one."""
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(Run(*args, cwd=cwd, report=report / str(number)))
            for number, args in enumerate(commands)
        ]
        first = [under_way.end() for under_way in started]
    return [
        conclusive(*ran.args, cwd=cwd, report=report / f"again-{number}") if ran.stalled else ran
        for number, ran in enumerate(first)
    ]


def until(condition: Any, timeout_s: float = 60.0) -> bool:
    """Polls until the condition is true; False when time has run out."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
