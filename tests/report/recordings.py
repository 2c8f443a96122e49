"""Experiments as real runs have written them, in recorded/: each the object of results.json, gzipped.

python tests/report/recordings.py NAME ID    # takes the experiment with this id out of reports/results.json
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import cast

from harness.report.results import Experiment

FOLDER = Path(__file__).parent / "recorded"
NAMES = tuple(sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz")))


def load(name: str) -> Experiment:
    """One of them, without the sentence that the run itself made of it."""
    experiment = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    experiment.pop("sentence", None)
    return cast(Experiment, experiment)


def _record(name: str, wanted: str, results: Path = Path("reports/results.json")) -> None:
    (found,) = [e for e in json.loads(results.read_text())["experiments"] if e["id"] == wanted]
    found["workers"] = [{**worker, "log": ""} for worker in found["workers"]]  # tracebacks name the machine's paths
    FOLDER.mkdir(exist_ok=True)
    with gzip.GzipFile(FOLDER / f"{name}.json.gz", "wb", mtime=0) as file:
        file.write(json.dumps(found, separators=(",", ":")).encode())


if __name__ == "__main__":
    _record(sys.argv[1], sys.argv[2])
