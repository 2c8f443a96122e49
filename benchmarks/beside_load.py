"""Load decides no verdict: the sweep of all variants, alone and beside busy loops, verdict by verdict.

    python -m benchmarks.beside_load [--loops N] [-- PYTEST ARGUMENTS]

Prints how long each run took, how many experiments had to run again because the machine had stalled, and every verdict
that differs. Exit status 1 where one does, or a run was not green. The loops are ended whatever happens.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOOPS = 4
SWEEP = ("scenarios/test_every_boundary.py",)
_LOOP = """
import ctypes, signal
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: none outlives this program
while True:
    pass
"""


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes that do nothing, as fast as they can."""
    hogs = [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(loops)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def run(arguments: list[str]) -> tuple[int, dict[str, Any]]:
    """One run of pytest: its exit status and results.json."""
    with tempfile.TemporaryDirectory() as report:
        command = [sys.executable, "-m", "pytest", *arguments, "-q", "--harness-report", report]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        results: dict[str, Any] = json.loads((Path(report) / "results.json").read_text())
    return done.returncode, results


def tell(name: str, status: int, results: dict[str, Any]) -> None:
    experiments = results["experiments"]
    again = sum(len(experiment["attempts"]) > 1 for experiment in experiments)
    print(f"{name}: {len(experiments)} experiments in {results['wall_s']:.0f} s, {again} ran again, status {status}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, default=LOOPS, help="busy loops beside the second run")
    parser.add_argument("arguments", nargs="*", default=SWEEP, help="what pytest is given")
    options = parser.parse_args()
    alone, first = run(list(options.arguments))
    tell("alone", alone, first)
    with busy(options.loops):
        beside, second = run(list(options.arguments))
    tell(f"beside {options.loops} busy loops", beside, second)
    verdicts = [{e["id"]: e["verdict"] for e in results["experiments"]} for results in (first, second)]
    differing = sorted(key for key in {**verdicts[0], **verdicts[1]} if verdicts[0].get(key) != verdicts[1].get(key))
    for key in differing:
        print(f"{key}: {verdicts[0].get(key, 'not run')} alone, {verdicts[1].get(key, 'not run')} beside the loops")
    print(f"{len(differing)} verdicts differ")
    return 1 if differing or alone or beside else 0


if __name__ == "__main__":
    sys.exit(main())
