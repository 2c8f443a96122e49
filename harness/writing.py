"""What a run leaves behind: results.json and the reports made from it; and the header that says what is run on what."""

from __future__ import annotations

import sys
import time
from importlib import metadata
from typing import Any

from harness import report
from harness.host import EngineHost, Progress
from harness.report import Run
from harness.settings import Settings
from harness.stack.local import local_servers


def header(settings: Settings) -> list[str]:
    """The report header: versions, lease, seed, subjects."""
    try:
        version = metadata.version("lockproof")
    except metadata.PackageNotFoundError:
        version = "from source"
    subjects = ", ".join(subject.name for subject in settings.subjects)
    return [
        f"lockproof {version}: {settings.stack} stack, lease {settings.ttl_ms} ms, seed {settings.seed}, "
        f"runs {settings.runs}, subjects {subjects}",
        *([f"lockproof servers: {local_servers(settings.toxiproxy)}"] if settings.stack == "local" else []),
    ]


def wait_with_progress(host: EngineHost) -> None:
    """One progress line on a terminal, none where there is none."""
    screen = sys.__stdout__
    if screen is None or not screen.isatty():
        return
    began_s = time.monotonic()

    def tell(now: Progress) -> None:
        left_s = (time.monotonic() - began_s) / now.done * (now.of - now.done) if now.done else 0
        screen.write(
            f"\r{now.done} of {now.of} experiments done, {now.failures} failures, {now.in_flight} in flight, "
            f"about {left_s:.0f} s left\033[K"
        )
        screen.flush()

    try:
        host.wait(tell)
    finally:
        screen.write("\r\033[K")
        screen.flush()


def write(run: Run, settings: Settings) -> bool:
    """Writes results.json and index.html; True when the run is green. Raises OSError."""
    settings.report.mkdir(parents=True, exist_ok=True)
    report.write(run, settings.report)
    return report.outcome(run).green


def summarize(run: Run, settings: Settings, writer: Any, *, written: bool) -> None:
    """The tables at the end of a run; where they could be written down the verdict, and where that is."""
    color, width = writer.hasmarkup, writer.fullwidth
    for line in report.summary(run, color=color, width=width, all_rows=settings.all_rows, verdict=written):
        writer.line(line)
    if written:
        writer.line(f"{settings.report}/results.json, {settings.report}/index.html")
