"""What a run leaves behind, one output a file; everything is drawn from the plain results.json dict.

results.py     the shape of results.json: read it, check it, write it atomically
merge.py       several runs as one; compare.py: before and after
timeline.py    an experiment's events as text; story.py: its money, in a sentence or a paragraph
failure.py     what a failing test prints
terminal.py    the summary at the end of a run
html.py        one self-contained page
github.py      step summary and annotations; junit.py: properties for JUnit XML
"""

from __future__ import annotations

from pathlib import Path

from harness.report.compare import Change, compare
from harness.report.failure import failure_text
from harness.report.github import error_annotations, step_summary, write_step_summary
from harness.report.html import write_html
from harness.report.junit import properties
from harness.report.merge import merge
from harness.report.outcome import Outcome, outcome
from harness.report.results import Experiment, ResultsError, Run, load, write_results
from harness.report.statistics import clopper_pearson_upper
from harness.report.story import paragraph, sentence
from harness.report.terminal import summary
from harness.report.timeline import text as timeline

__all__ = [
    "Change",
    "Experiment",
    "Outcome",
    "ResultsError",
    "Run",
    "clopper_pearson_upper",
    "compare",
    "error_annotations",
    "failure_text",
    "load",
    "merge",
    "outcome",
    "paragraph",
    "properties",
    "sentence",
    "step_summary",
    "summary",
    "timeline",
    "write",
    "write_html",
    "write_results",
    "write_step_summary",
]


def write(run: Run, directory: Path | str) -> list[Path]:
    """Writes results.json and index.html into directory, each atomically. Raises OSError naming the file and why."""
    directory = Path(directory)
    return [write_results(run, directory / "results.json"), write_html(run, directory / "index.html")]
