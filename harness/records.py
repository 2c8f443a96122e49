"""Outcomes as the plain data of results.json, whose shape is a contract with other programs."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness import margins
from harness.attempts import Entry
from harness.engine import Engine
from harness.experiment import Outcome
from harness.faults import FAULTS
from harness.report import story
from harness.report.results import SCHEMA, Experiment, Margin, Run
from harness.settings import Settings
from harness.spec import INCONCLUSIVE


def experiment(entry: Entry, settings: Settings) -> Experiment:
    """One experiment with all its attempts."""
    outcome = entry.attempts[-1]
    spec = entry.spec
    record: Experiment = {
        "id": spec.id,
        "scenario": spec.scenario,
        "subject": spec.subject,
        "fault": spec.fault,
        "place": spec.place,
        "verdict": outcome.verdict.kind,
        "expected": spec.expected,
        "hole": spec.hole,
        "reason": outcome.verdict.reason,
        "charges": outcome.verdict.charges,
        "landed": outcome.verdict.landed,
        "contended": outcome.verdict.contended,
        "attempts": [_attempt(attempt, last=attempt is outcome) for attempt in entry.attempts],  # type: ignore[misc]
        "run": spec.run,
        "ttl_ms": spec.ttl_ms,
        "recovery_s": outcome.recovery_s,
        "wall_s": round(outcome.wall_s, 3),
        "replay": replay_command(spec.token, settings),
        "workers": outcome.workers,  # type: ignore[typeddict-item]
        "events": outcome.history.to_json(),
    }
    if entry.overruled is not None:
        record["verdict"], record["reason"] = INCONCLUSIVE, entry.overruled
    record["sentence"] = story.sentence(record)
    return record


def _attempt(outcome: Outcome, *, last: bool) -> dict[str, Any]:
    """An attempt; what an earlier one saw is kept with it, the last one's events are the experiment's."""
    attempt: dict[str, Any] = {"verdict": outcome.verdict.kind, "reason": outcome.verdict.reason}
    if not last:
        attempt["events"] = outcome.history.to_json()
    return attempt


def replay_command(token: str, settings: Settings) -> str:
    """The command that runs one experiment again."""
    flags = f" {settings.flags}" if settings.flags else ""
    scenarios = "scenarios/" if Path(settings.cwd, "scenarios").is_dir() else "--pyargs scenarios"
    return f"pytest {scenarios} --harness-replay {token}{flags}"


def run(engine: Engine, settings: Settings, *, started: datetime.datetime, wall_s: float, partial: bool) -> Run:
    """The whole run so far."""
    entries = [entry for entry in engine.entries.values() if entry.attempts and entry.done.done()]
    experiments = [experiment(entry, settings) for entry in entries]
    tried = {subject.name for subject in settings.subjects} | {record["subject"] for record in experiments}
    return {
        "schema": SCHEMA,
        "partial": partial,
        "seed": settings.seed,
        "started": started.isoformat(timespec="seconds"),
        "wall_s": round(wall_s, 2),
        "ttl_ms": settings.ttl_ms,
        "host": {
            "os": f"{platform.system()} {platform.release()}",
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
        },
        "commit": _commit(settings.cwd),
        "stack": {
            "kind": engine.stack.kind,
            "redis": engine.stack.versions.redis,
            "toxiproxy": engine.stack.versions.toxiproxy,
            "postgres": engine.stack.versions.postgres,
        },
        "subjects": [_subject(engine, name) for name in engine.crews if name in tried],  # type: ignore[misc]
        "experiments": experiments,
        "faults": {name: {"title": FAULTS[name].title} for name in sorted({e["fault"] for e in experiments})},
    }


def _subject(engine: Engine, name: str) -> dict[str, Any]:
    crew, profile = engine.crews[name], engine.profiles.get(name)
    return {
        "name": name,
        "kind": crew.subject.kind,
        "source": crew.source,
        "lock": profile.lock if profile else None,
        "lease_ms": None if profile is None or profile.lease_ms is None else round(profile.lease_ms),
        "boundaries": list(profile.known) if profile else [],
        "unstable": list(profile.unstable) if profile else [],
        "margin": _margin(name, engine.entries.values()),
    }


def _margin(subject: str, entries: Iterable[Entry]) -> Margin | None:
    """Of the experiments in which nothing befell A or its link to the lock, and the machine did not stand still."""
    mine = [e for e in entries if e.spec.subject == subject and e.spec.fault in margins.UNTOUCHED and e.attempts]
    last = [entry.attempts[-1] for entry in mine]
    return margins.margin(outcome.history for outcome in last if outcome.verdict.kind != INCONCLUSIVE)


def _commit(cwd: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=cwd, capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None
