"""Records the history of every broken subject's catching experiment: python -m tests.broken.record [NAME ...]

Writes tests/broken/histories/NAME.json.gz, which tests/test_histories.py judges again, years later if need be.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from harness import Result
from tests.broken.expected import BANK, SWEEP, Broken
from tests.broken.running import run_scenarios

HISTORIES = Path(__file__).parent / "histories"
TIMEOUT_S = 600.0
_KEPT = ("id", "subject", "fault", "place", "verdict", "charges", "ttl_ms", "events")


def path_of(broken: Broken) -> Path:
    """Where the history of a subject is kept."""
    return HISTORIES / f"{broken.name}.json.gz"


def load(broken: Broken) -> dict[str, Any]:
    """The recorded experiment."""
    with gzip.open(path_of(broken), "rt") as file:
        recorded: dict[str, Any] = json.load(file)
    return recorded


def save(broken: Broken, experiment: dict[str, Any]) -> None:
    """Keeps an experiment, byte for byte the same for the same experiment."""
    HISTORIES.mkdir(exist_ok=True)
    text = json.dumps({key: experiment[key] for key in _KEPT}, separators=(",", ":"))
    path_of(broken).write_bytes(gzip.compress(text.encode(), mtime=0))


def record(broken: Broken) -> str:
    """Makes the catching experiment and keeps its history; returns what came of it, in a line."""
    experiment = _alone(broken) if broken.scenario == SWEEP else _in_its_scenario(broken)
    if experiment is None or experiment["verdict"] != broken.verdict:
        return f"{broken.name}: NOT recorded: {experiment and experiment['reason']}"
    save(broken, experiment)
    return f"{broken.name}: {experiment['id']}, {path_of(broken).stat().st_size} bytes"


def _in_its_scenario(broken: Broken) -> dict[str, Any] | None:
    with tempfile.TemporaryDirectory() as report:
        run = run_scenarios(broken.arguments, Path(report), timeout_s=TIMEOUT_S)
    own = [e for e in run.experiments(*broken.caught_by) if e in run.of_own_subject()]
    return own[0] if own else None


def _alone(broken: Broken) -> dict[str, Any]:
    """One experiment of a sweep, as --harness-replay makes it, without the hundred others."""
    recorded: list[dict[str, Any]] = []

    def keep(result: Result) -> str:
        recorded.append(dict(result.record))
        return result.record["reason"]

    with mock.patch.object(Result, "explained", keep):
        pytest.main(list(broken.replay))
    return {**recorded[0], "id": f"{SWEEP}/{broken.subject}/{broken.fault}@{broken.place}"}


if __name__ == "__main__":
    for entry in BANK:
        if not sys.argv[1:] or entry.name in sys.argv[1:]:
            print(record(entry), flush=True)
