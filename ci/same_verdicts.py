"""Compares runs of one commit verdict by verdict: python ci/same_verdicts.py results.json results.json ...

Exit status 1 when an experiment came out differently, is in one run and not in another, or when the runs show nothing
about each other: of different commits, broken off, on the same servers, or empty. What a run left out as a whole (a
scenario of a subject) is counted and named, and is no difference.
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness.report import Run, load


def differences(runs: dict[str, Run]) -> list[str]:
    """One line for each experiment on which the runs do not agree."""
    verdicts = {name: {e["id"]: e["verdict"] for e in run["experiments"]} for name, run in runs.items()}
    left_out = set(missing(runs))
    told = []
    for experiment in dict.fromkeys(key for found in verdicts.values() for key in found):
        part = _part(experiment)
        has = {name: found for name, found in verdicts.items() if (name, part) not in left_out}
        seen = {name: found.get(experiment, "not run") for name, found in has.items()}
        if len(set(seen.values())) > 1:
            told.append(f"{experiment}: " + ", ".join(f"{name} {verdict}" for name, verdict in seen.items()))
    return told


def missing(runs: dict[str, Run]) -> list[tuple[str, str]]:
    """(run, scenario of a subject) for each one of another run that a run has nothing of."""
    has = {name: {_part(e["id"]) for e in run["experiments"]} for name, run in runs.items()}
    every = sorted(set().union(*has.values()))
    return [(name, part) for name, found in has.items() for part in every if part not in found]


def _part(experiment: str) -> str:
    """scenario/subject of an experiment's id."""
    return "/".join(experiment.split("/")[:2])


def incomparable(runs: dict[str, Run]) -> list[str]:
    """Why the runs' agreement would show nothing."""
    told = [f"{name} was broken off" for name, run in runs.items() if run["partial"]]
    told += [f"{name} has no experiment" for name, run in runs.items() if not run["experiments"]]
    if len({run["commit"] for run in runs.values()}) > 1:
        told.append("of different commits: " + ", ".join(f"{name} {run['commit']}" for name, run in runs.items()))
    servers: dict[tuple[str, str], str] = {}
    for name, run in runs.items():
        other = servers.setdefault((run["stack"]["kind"], run["stack"]["toxiproxy"]), name)
        if other != name:
            told.append(f"{name} and {other} ran on the same servers")
    return told


def main() -> int:
    runs = {Path(name).parent.name: load(name) for name in sys.argv[1:]}
    if len(runs) < 2:
        sys.stderr.write(f"{__doc__}")
        return 2
    told = incomparable(runs) + differences(runs)
    for line in told:
        print(line)
    for name, run in runs.items():
        on = ", ".join(f"{key} {value}" for key, value in run["stack"].items())
        print(f"{name}: {len(run['experiments'])} experiments in {run['wall_s']:.0f} s on {on}")
    for name in runs:
        if without := [part for other, part in missing(runs) if other == name]:
            print(f"{name}: without {len(without)} that another has: {', '.join(without)}")
    print(f"{len(told)} differences")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
