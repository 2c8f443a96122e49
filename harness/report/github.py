"""What a run says on GitHub: a step summary, and an annotation at the user's own line for each failure.

Formats: docs.github.com, "Workflow commands for GitHub Actions" (annotations, job summaries).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from harness.report.compare import Change, headline
from harness.report.outcome import outcome
from harness.report.results import Experiment, Run, Subject
from harness.report.story import told
from harness.report.tables import Table, failures, status, sweeps, tables
from harness.report.words import one_line, plural

SUMMARY_LIMIT = 1_000_000
"""Bytes: GitHub refuses a step summary over 1 MiB as a whole."""
ANNOTATIONS = 10
"""GitHub shows ten error annotations of a step and drops the rest in silence."""

_ICONS = {"one": "\N{WHITE HEAVY CHECK MARK}", "known": "\N{LARGE YELLOW CIRCLE}", "bad": "\N{CROSS MARK}",
          "closed": "\N{CROSS MARK}", "open": "\N{BLACK QUESTION MARK ORNAMENT}", "na": "\N{EN DASH}"}  # fmt: skip


def step_summary(run: Run, changes: list[Change] | None = None) -> str:
    """The run as Markdown: verdict, what changed, the tables, each failure with its sentence and replay command."""
    verdict = outcome(run)
    parts = [
        f"## {_ICONS['one' if verdict.green else 'bad']} lockproof",
        "",
        _text(verdict.line, 2000),
        "",
    ]
    if changes is not None:
        parts += [f"### Compared with before: {_text(headline(changes))}", ""]
        parts += [f"- **{change.kind}** {_text(change.line, 400)}" for change in changes[:50]] + [""]
    failed = failures(run)
    for _, experiment in failed[:20]:
        parts += [*_failure(experiment), ""]
    if len(failed) > 20:
        parts += [f"{plural(len(failed) - 20, 'failure')} more in the report.", ""]
    for table in tables(run):
        parts += [*_markdown(table), ""]
    for sweep in sweeps(run):
        parts += [f"- sweep of **{_text(sweep.subject)}**: {_text(sweep.sentence, 400)}"]
    whole = "\n".join(parts).rstrip() + "\n"
    encoded = whole.encode("utf-8", "replace")
    if len(encoded) <= SUMMARY_LIMIT:
        return whole
    cut = encoded[:SUMMARY_LIMIT].decode("utf-8", "ignore").rpartition("\n")[0]
    return f"{cut}\n\nCut at GitHub's limit of 1 MiB; the rest is in the report.\n"


def write_step_summary(run: Run, changes: list[Change] | None = None, env: Mapping[str, str] = os.environ) -> bool:
    """Appends the summary to the file that GitHub named; False where there is none. Raises OSError."""
    target = env.get("GITHUB_STEP_SUMMARY")
    if not target:
        return False
    with Path(target).open("a", encoding="utf-8", errors="replace") as file:
        file.write(step_summary(run, changes))
    return True


def error_annotations(run: Run, root: Path | None = None) -> list[str]:
    """One ::error workflow command for each failure, at the subject's file and line. Print each on a line of its own.

    root: the repository, so that an absolute source becomes the relative path GitHub can place, wherever it was run.
    """
    subjects = {subject["name"]: subject for subject in run["subjects"]}
    failed = failures(run)
    lines = [
        _annotation(experiment, subjects.get(experiment["subject"]), root) for _, experiment in failed[:ANNOTATIONS]
    ]
    if len(failed) > ANNOTATIONS:
        rest = len(failed) - ANNOTATIONS
        lines[-1] = f"::error title=lockproof::{plural(rest + 1, 'failure')} more are in the report"
    return lines


def escape_data(value: str) -> str:
    """The message of a workflow command: percent sign, carriage return and newline escaped."""
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(value: str) -> str:
    """A property of a workflow command: colon and comma too."""
    return escape_data(value).replace(":", "%3A").replace(",", "%2C")


def _annotation(e: Experiment, subject: Subject | None, root: Path | None) -> str:
    sentence = one_line(told(e), 1000)
    title = (
        f"{status(e).words}: {one_line(e['subject'], 80)}, {one_line(e['fault'], 60)} at {one_line(e['place'], 120)}"
    )
    place = _place(subject, root)
    message = escape_data(f"{sentence}\nReplay: {one_line(e['replay'], 500)}")
    return f"::error {place}title={escape_property(title)}::{message}"


def _place(subject: Subject | None, root: Path | None) -> str:
    source = subject["source"] if subject is not None else None
    if not source:
        return ""
    name, _, line = source.rpartition(":")
    if not line.isdigit():
        name, line = source, ""
    path = Path(name)
    if root is not None and path.is_absolute() and path.is_relative_to(root):
        path = path.relative_to(root)
    return f"file={escape_property(one_line(path.as_posix(), 500))}," + (f"line={line}," if line else "")


def _failure(e: Experiment) -> list[str]:
    where = f"{_text(e['subject'])}, {_text(e['fault'])} at {_text(e['place'])}"
    return [
        f"#### {_ICONS[status(e).key]} {status(e).words}: {where}",
        "",
        _text(told(e), 1000),
        "",
        _code(e["replay"]),
    ]


def _markdown(table: Table) -> list[str]:
    names = [_text(" @ ".join(filter(None, table.heading(column))), 80) for column in table.columns]
    rows = [f"### {_text(table.scenario)}", "", f"| subject | {' | '.join(names)} |", f"| --- |{' --- |' * len(names)}"]
    for subject in table.subjects:
        cells = [table.cell(subject, column) for column in table.columns]
        words = ["" if cell is None else f"{_ICONS[cell.status.key]} {cell.words}" for cell in cells]
        rows.append(f"| {_text(subject)} | {' | '.join(words)} |")
    return rows


def _text(value: str, limit: int = 120) -> str:
    """Somebody else's text inside a line of Markdown or a cell: nothing in it is markup or a mention."""
    shown = one_line(value, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{character}" if character in "\\`*_{}[]()#!|~$" else character for character in shown).replace(
        "@", "&#64;"
    )


def _code(command: str) -> str:
    """A fenced block whose fence is longer than any run of backticks in it."""
    shown = one_line(command, 1000)
    fence = "```"
    while fence in shown:
        fence += "`"
    return f"{fence}sh\n{shown}\n{fence}"
