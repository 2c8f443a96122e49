"""Reports of small real runs on the local stack: pytest as a user starts it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from core.runs import conclusive, run

SLOW = "slow_charge and (before-commit or after-commit)"
WHOLE = {
    "swept": ("scenarios/test_every_boundary.py", "--harness-variant", "naive-ttl"),
    "passing": (
        *("scenarios/", "--harness-variant", "naive-ttl", "--harness-variant", "watchdog"),
        *("-k", f"({SLOW}) or (test_after_a_crash and (charge-request or record-reply))"),
    ),
    "broken": (
        *("scenarios/", "--harness-subject", "examples.redis_lock.billing:charge_invoice"),
        *("-k", "(slow_charge and before-commit) or (freeze and charge-reply)"),
    ),
    "hostile": (
        *("scenarios/", "--harness-subject", "tests.report.hostile_subject:charge_invoice"),
        *("-k", "slow_charge and before-commit"),
    ),
}
"""What is run to its end."""

INTERRUPTED = {"partial": "first-outcome", "empty": "first-experiment"}
"""Runs that are told to end (SIGTERM), and when: see ends_early.py."""


def once(folder: Path, name: str, make: Callable[[], Any], *, wait: bool = True) -> Any:
    """What make() returns, made by the first process that asks and kept in folder as JSON.

    wait=False: None where somebody else is making it now.
    """
    kept = folder / f"{name}.json"
    with (folder / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return None
        if not kept.exists():
            kept.write_text(json.dumps(make()))
        return json.loads(kept.read_text())


def shared(factory: pytest.TempPathFactory) -> Path:
    """A directory that all processes of this test session have in common."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "real-runs"
    folder.mkdir(exist_ok=True)
    return folder


def make(folder: Path, name: str) -> Path:
    """Runs one of them and returns the directory of its results.json and index.html."""
    place = folder / name
    return _whole(place, WHOLE[name]) if name in WHOLE else _interrupted(place, INTERRUPTED[name])


def _whole(place: Path, args: tuple[str, ...]) -> Path:
    ran = conclusive(*args, report=place)
    assert ran.results is not None, ran.out
    return max(place.iterdir(), key=lambda path: int(path.name))


def _interrupted(place: Path, moment: str) -> Path:
    """A run of several experiments of which only some, or none, are done when it is told to end."""
    args = ("scenarios/", "--harness-variant", "naive-ttl", "-k", "slow_charge", "-p", "tests.report.ends_early")
    ran = run(*args, report=place, env={"ENDS_AT": moment})
    assert ran.results is not None, ran.out
    return place
