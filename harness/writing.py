"""What a run leaves behind: results.json and the reports made from it; and the header that says what is run on what."""

from __future__ import annotations

from importlib import metadata

import pytest

from harness import report
from harness.report import Run
from harness.settings import Settings

RUN = pytest.StashKey[Run | None]()
PROBLEM = pytest.StashKey[str]()


def header(settings: Settings) -> list[str]:
    """The report header: versions, lease, seed, subjects."""
    try:
        version = metadata.version("lockproof")
    except metadata.PackageNotFoundError:
        version = "from source"
    subjects = ", ".join(subject.name for subject in settings.subjects)
    return [
        f"lockproof {version}: {settings.stack} stack, lease {settings.ttl_ms} ms, seed {settings.seed}, "
        f"runs {settings.runs}, subjects {subjects}"
    ]


def write(run: Run, settings: Settings) -> None:
    """Writes results.json and index.html. Raises OSError."""
    settings.report.mkdir(parents=True, exist_ok=True)
    report.write(run, settings.report)
