"""Draws the report again: python -m harness.report results.json [more.json ...] -o DIR

Several files (shards of a CI matrix, local and compose) become one report; --compare before.json after.json puts what
changed at the top. On GitHub it also writes the step summary and the annotations (--github).

Exit status: 0 it was drawn and the run is green; 1 drawn, not green (with --compare: a verdict got worse); 2 not drawn.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.report import (
    Change,
    ResultsError,
    Run,
    compare,
    error_annotations,
    load,
    merge,
    outcome,
    summary,
    write_html,
    write_results,
    write_step_summary,
)
from harness.report.compare import headline

EXIT_GREEN, EXIT_NOT_GREEN, EXIT_NOT_DRAWN = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        run, changes = _read(options)
        directory = Path(options.output)
        if len(options.results) > 1 and not options.compare:
            write_results(run, directory / "results.json")
        page = write_html(run, directory / "index.html", changes)
        if options.github:
            write_step_summary(run, changes)
    except (ResultsError, OSError) as error:
        sys.stderr.write(f"harness.report: {_told(error)}\n")
        return EXIT_NOT_DRAWN
    lines = summary(run, color=_color(), width=shutil.get_terminal_size((100, 24)).columns, all_rows=options.all_rows)
    if changes is not None:
        lines += ["", f"Compared with before: {headline(changes)}.", *(f"  {change.line}" for change in changes)]
    if options.github:
        lines += error_annotations(run, Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()))
    _say([*lines, "", f"Report: {page}"])
    if changes is not None:
        return EXIT_NOT_GREEN if any(change.kind == "worse" for change in changes) else EXIT_GREEN
    return EXIT_GREEN if outcome(run).green else EXIT_NOT_GREEN


def _read(options: argparse.Namespace) -> tuple[Run, list[Change] | None]:
    names = list(options.results)
    runs = [load(name) for name in names]
    if options.compare:
        if len(runs) != 2:
            raise ResultsError(f"--compare takes two files, before and after; {len(runs)} given")
        return runs[1], compare(runs[0], runs[1])
    return merge(runs, _short_names(names)), None


def _short_names(names: Sequence[str]) -> list[str]:
    """Paths without what they all share: shards usually differ in one folder."""
    paths = [Path(name).resolve() for name in names]
    if len(set(paths)) < 2:
        return list(names)
    shared = Path(os.path.commonpath([str(path) for path in paths]))
    cut = [path.relative_to(shared) for path in paths]
    same_file = len({path.name for path in cut}) == 1
    return [str(path.parent if same_file and path.parent != Path() else path.with_suffix("")) for path in cut]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m harness.report", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", nargs="+", metavar="results.json", help="what runs wrote; several are merged")
    parser.add_argument(
        "-o", "--output", default="reports", metavar="DIR", help="where index.html goes (default: reports)"
    )
    parser.add_argument("--compare", action="store_true", help="two files, before and after: show what changed")
    parser.add_argument(
        "--all-rows", action="store_true", help="sweep tables in full, not only the rows with a failure"
    )
    parser.add_argument("--github", action="store_true", help="also write the step summary and error annotations")
    return parser


def _told(error: Exception) -> str:
    """An OSError with the file it is about, which its own words put last."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _color() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _say(lines: Sequence[str]) -> None:
    """Prints, also on a terminal whose encoding lacks a character."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write("\n".join(lines).encode(encoding, "replace").decode(encoding) + "\n")


if __name__ == "__main__":
    sys.exit(main())
