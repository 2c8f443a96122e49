"""Several runs as one: shards of a CI matrix, the local and the compose stack, a night's repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from harness.report.results import Experiment, ResultsError, Run, Subject


def merge(runs: Sequence[Run], names: Sequence[str] | None = None) -> Run:
    """One run out of several. names (one for each, say the files) tell in the report which run a verdict is from.

    The same file given twice counts once. An experiment that two runs did stays twice, told apart by "source"; where
    the verdicts differ the id goes into "disagreements", which keeps the run from being green. The result is partial
    when any of them is. Raises ResultsError for no runs at all.
    """
    if not runs:
        raise ResultsError("no results.json was given: there is nothing to merge")
    if len(runs) == 1:
        return runs[0]
    labels = _labels(runs, names)
    kept: list[tuple[str, Run]] = []
    for label, run in zip(labels, runs, strict=True):
        if all(run != other for _, other in kept):
            kept.append((label, run))
    if len(kept) == 1:
        return kept[0][1]
    first = kept[0][1]
    experiments = [
        cast(Experiment, {**e, "source": e.get("source", label)}) for label, run in kept for e in run["experiments"]
    ]
    merged: dict[str, Any] = {
        **first,
        "partial": any(run["partial"] for _, run in kept),
        "started": min(run["started"] for _, run in kept),
        "wall_s": max(float(run["wall_s"]) for _, run in kept),
        "commit": _same([run["commit"] for _, run in kept]),
        "faults": {name: told for _, run in kept for name, told in run.get("faults", {}).items()},
        "subjects": _subjects([run for _, run in kept]),
        "experiments": experiments,
        "sources": [source for label, run in kept for source in run.get("sources") or [_source(label, run)]],
        "disagreements": _disagreements(experiments),
    }
    merged.pop("recovery", None)  # of the first run only: the tables read it from the experiments
    merged.pop("inconclusive", None)
    merged["sweep"] = _sweep([run for _, run in kept])
    return cast(Run, merged)


def _labels(runs: Sequence[Run], names: Sequence[str] | None) -> list[str]:
    """Names that tell the runs apart: those given, else the kind of stack, numbered where that is not enough."""
    wanted = list(names) if names is not None else [str(run["stack"].get("kind", "run")) for run in runs]
    if len(wanted) != len(runs):
        raise ResultsError(f"{len(wanted)} names for {len(runs)} runs")
    return [
        label if wanted.count(label) == 1 else f"{label} #{wanted[: index + 1].count(label)}"
        for index, label in enumerate(wanted)
    ]


def _source(label: str, run: Run) -> dict[str, Any]:
    keys = ("started", "wall_s", "seed", "ttl_ms", "host", "commit", "stack", "partial")
    about: dict[str, Any] = {key: run[key] for key in keys}  # type: ignore[literal-required]
    return {"name": label, "experiments": len(run["experiments"]), **about}


def _subjects(runs: Sequence[Run]) -> list[Subject]:
    """Every subject once, as the first run that has learned its lock describes it."""
    known: dict[str, Subject] = {}
    for run in runs:
        for subject in run["subjects"]:
            if subject["name"] not in known or (known[subject["name"]]["lock"] is None and subject["lock"] is not None):
                known[subject["name"]] = subject
    return list(known.values())


def _sweep(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """The declared axes of each sweep, together. The sentences are told anew: each spoke of its own run only."""
    together: dict[str, dict[str, Any]] = {}
    for run in runs:
        for subject, sweep in run.get("sweep", {}).items():
            axes = together.setdefault(subject, {"boundaries": [], "faults": []})
            for axis in ("boundaries", "faults"):
                axes[axis] = list(dict.fromkeys([*axes[axis], *sweep.get(axis, [])]))
    return together


def _disagreements(experiments: Sequence[Experiment]) -> list[dict[str, Any]]:
    """Ids with conclusive verdicts that differ between sources, and what each source says."""
    said: dict[tuple[str, int], dict[str, str]] = {}
    for e in experiments:
        if e["verdict"] != "inconclusive":
            said.setdefault((e["id"], e["run"]), {})[e["source"]] = e["verdict"]
    return [
        {"id": key, "run": run, "verdicts": verdicts}
        for (key, run), verdicts in said.items()
        if len(set(verdicts.values()) - {"not-applicable"}) > 1
    ]


def _same(values: Sequence[str | None]) -> str | None:
    return values[0] if len(set(values)) == 1 else None
