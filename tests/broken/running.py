"""Runs a subject of tests/broken or tests/sound exactly as a user would: pytest scenarios/ in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

Experiment = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of pytest: its exit status, what it printed, and results.json (empty where none was written)."""

    status: int
    output: str
    results: dict[str, Any]

    def experiments(self, scenario: str, fault: str, place: str) -> list[Experiment]:
        """The experiments at one place, of every subject of the run."""
        wanted = (scenario, fault, place)
        return [e for e in self.results.get("experiments", []) if (e["scenario"], e["fault"], e["place"]) == wanted]

    def of_own_subject(self) -> list[Experiment]:
        """The experiments of the subject that was given, without its control's and its twin's."""
        own = [s["name"] for s in self.results.get("subjects", []) if s["kind"] != "variant"]
        return [e for e in self.results.get("experiments", []) if e["subject"] in own]

    def tail(self, lines: int = 60) -> str:
        """The end of the output, for a message."""
        return "\n".join(self.output.splitlines()[-lines:])


def run_scenarios(arguments: Sequence[str], report: Path, *, timeout_s: float) -> Run:
    """Runs `pytest scenarios/ ARGUMENTS`. Raises subprocess.TimeoutExpired."""
    command = [sys.executable, "-m", "pytest", "scenarios/", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        [*command, "--harness-report", str(report)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    results = report / "results.json"
    return Run(done.returncode, done.stdout, json.loads(results.read_text()) if results.exists() else {})
