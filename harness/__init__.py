"""lockproof: fault injection for distributed locks around money.

The public API on one screen. A scenario declares its experiments and asserts exactly one charge:

    from harness import Hole, experiments

    @experiments("slow-charge", places=("before-commit",), holes={("naive-ttl", "before-commit"): "why"})
    def test_charged_exactly_once(experiment):
        experiment.charged_exactly_once()

A worker in Python gets a Job. Everything else is in pytest's options: pytest --help, "lockproof".
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.errors import DoubleCharge, ExperimentFailed, Inconclusive, NoCharge
    from harness.history import Event, History
    from harness.scenario import Hole, Result, experiments, sweeps
    from harness.subject import Job
    from harness.sweep import Sweep
    from harness.verdict import Verdict, judge

__all__ = [
    "DoubleCharge",
    "Event",
    "ExperimentFailed",
    "History",
    "Hole",
    "Inconclusive",
    "Job",
    "NoCharge",
    "Result",
    "Sweep",
    "Verdict",
    "experiments",
    "judge",
    "sweeps",
]

_HOME = {
    "DoubleCharge": "errors", "ExperimentFailed": "errors", "Inconclusive": "errors", "NoCharge": "errors",
    "Event": "history", "History": "history",
    "Hole": "scenario", "Result": "scenario", "experiments": "scenario", "sweeps": "scenario",
    "Job": "subject", "Sweep": "sweep",
    "Verdict": "verdict", "judge": "verdict",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Imports what is asked for when it is asked for: the keeper and the workers need next to nothing."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
