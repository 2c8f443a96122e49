"""Compares runs of one commit verdict by verdict: python ci/same_verdicts.py results.json results.json ...

Exit status 1 when an experiment came out differently, or is in one run and not in another.
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness.report import Run, load


def differences(runs: dict[str, Run]) -> list[str]:
    """One line for each experiment on which the runs do not agree."""
    verdicts = {name: {e["id"]: e["verdict"] for e in run["experiments"]} for name, run in runs.items()}
    told = []
    for experiment in dict.fromkeys(key for found in verdicts.values() for key in found):
        seen = {name: found.get(experiment, "not run") for name, found in verdicts.items()}
        if len(set(seen.values())) > 1:
            told.append(f"{experiment}: " + ", ".join(f"{name} {verdict}" for name, verdict in seen.items()))
    return told


def main() -> int:
    runs = {Path(name).parent.name: load(name) for name in sys.argv[1:]}
    if len(runs) < 2:
        sys.stderr.write(f"{__doc__}")
        return 2
    told = differences(runs)
    for line in told:
        print(line)
    sizes = ", ".join(f"{name} {len(run['experiments'])}" for name, run in runs.items())
    print(f"{len(told)} differences between {sizes} experiments")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
