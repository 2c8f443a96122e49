"""The end of a run on the terminal: tables of what came out, and one line that says what it amounts to."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence

from harness.report.outcome import outcome
from harness.report.results import Run
from harness.report.statistics import clopper_pearson_upper
from harness.report.tables import ABSENT, Cell, Status, Sweep, Table, recoveries, status, sweeps, tables
from harness.report.words import duration, one_line, plural

_ESCAPES = {"one": "32", "known": "33", "bad": "1;31", "closed": "1;31", "open": "1;35", "na": "2", "head": "1"}
_NAME_WIDTH = 34
_FIRST_WIDTH = 44
_LEAST_WIDTH = 13

Paint = Callable[[str, str], str]
Rows = list[list[tuple[str, str]]]
"""A table's cells: (what it says, which colour)."""


def summary(
    run: Run, *, color: bool = False, width: int = 100, all_rows: bool = False, verdict: bool = True
) -> list[str]:
    """The summary, line by line. width: columns of the terminal; all_rows: sweeps in full, not only broken rows.

    verdict: whether the one line that sums it up comes last (not where nothing of it could be written down).
    """
    paint: Paint = (lambda text, key: f"\033[{_ESCAPES[key]}m{text}\033[0m") if color else (lambda text, key: text)
    width = max(width, 40)
    out: list[str] = []
    for table in tables(run):
        out += [*_table(table, paint, width), ""]
    for sweep in sweeps(run):
        out += [*_sweep(sweep, paint, width, all_rows), ""]
    for part in (_crashes(run, paint, width), _bounds(run, paint, width), _margins(run, paint, width)):
        out += [*part, ""] if part else []
    if verdict:
        came = outcome(run)
        out += [paint(line, "one" if came.green else "bad") for line in textwrap.wrap(came.line, width)]
    return out


def _table(table: Table, paint: Paint, width: int) -> list[str]:
    notes: dict[str, int] = {}
    title, only = one_line(table.scenario, 60), table.columns[0][0]
    if table.one_fault and only not in (table.scenario, "none"):
        title += f" ({one_line(only, 40)})"
    heads = [one_line(" @ ".join(filter(None, table.heading(column))), 200) for column in table.columns]
    rows: Rows = []
    for subject in table.subjects:
        row = [(one_line(subject, 200), "")]
        for column in table.columns:
            cell = table.cell(subject, column)
            row.append(("", "") if cell is None else (_words(cell, notes), cell.status.key))
        rows.append(row)
    return [*_title(title, paint, width), *_grid(["", *heads], rows, paint, width), *_notes(notes, width)]


def _sweep(sweep: Sweep, paint: Paint, width: int, all_rows: bool) -> list[str]:
    out = _title(f"every boundary: {one_line(sweep.subject, 60)}", paint, width)
    out += textwrap.wrap(one_line(sweep.sentence, 500), width, initial_indent="  ", subsequent_indent="  ")
    shown = [boundary for boundary in sweep.boundaries if all_rows or sweep.broken(boundary)]
    notes: dict[str, int] = {}
    rows: Rows = []
    for boundary in shown:
        row = [(one_line(boundary, 200), "")]
        for fault in sweep.faults:
            cell = sweep.cell(boundary, fault)
            row.append(("", "") if cell is None else (_words(cell, notes), cell.status.key))
        rows.append(row)
    if rows:
        out += [
            *_grid(["", *(one_line(fault, 40) for fault in sweep.faults)], rows, paint, width),
            *_notes(notes, width),
        ]
        if len(shown) < len(sweep.boundaries):
            rest = plural(len(sweep.boundaries) - len(shown), "boundary", "boundaries")
            out.append(f"  {rest} more, none with a failure")
    return out


def _crashes(run: Run, paint: Paint, width: int) -> list[str]:
    rows: Rows = []
    for row in recoveries(run):
        lease = "none" if row.lease_s is None else duration(row.lease_s * 1000)
        locked = " to ".join(duration(seconds * 1000) for seconds in row.range)
        cells = (one_line(row.subject, 200), locked, lease, plural(row.points, "crash", "crashes"))
        rows.append([(text, "") for text in cells])
    if not rows:
        return []
    title = _title("after a crash: how long the customer stayed locked for the next worker", paint, width)
    return [*title, *_grid(["", "locked for", "lease", "measured"], rows, paint, width)]


def _bounds(run: Run, paint: Paint, width: int) -> list[str]:
    """Where everything ran several times: violations, runs, and what the rate is below at 95 %."""
    groups: dict[tuple[str, str], list[Status]] = {}
    for e in run["experiments"]:
        if e["verdict"] not in ("inconclusive", "not-applicable"):
            groups.setdefault((e["subject"], e["fault"]), []).append(status(e))
    if (
        max((e["run"] for e in run["experiments"]), default=0) - min((e["run"] for e in run["experiments"]), default=0)
        < 1
    ):
        return []
    rows: Rows = []
    for (subject, fault), found in groups.items():
        wrong, total = sum(s.key in ("known", "bad") for s in found), len(found)
        upper = 100 * clopper_pearson_upper(wrong, total)
        below = f"below {upper:.1f} %" if upper < 99.95 else "not bounded"
        cells = (one_line(subject, 200), one_line(fault, 60), str(wrong), str(total), below)
        rows.append([(text, "known" if wrong and index == 2 else "") for index, text in enumerate(cells)])
    title = _title(
        "violations over all runs, and the rate they leave possible (one-sided 95 %, Clopper-Pearson)", paint, width
    )
    note = textwrap.wrap("The bound speaks of the jitter drawn in these runs, not of production.", width - 2)
    return [
        *title,
        *_grid(["", "fault", "violations", "runs", "rate"], rows, paint, width),
        *(f"  {line}" for line in note),
    ]


def _margins(run: Run, paint: Paint, width: int) -> list[str]:
    rows: Rows = []
    for subject in run["subjects"]:
        margin = subject.get("margin")
        if margin:
            part = f"{100 * margin['worst_gap_ms'] / margin['lease_ms']:.0f} %" if margin["lease_ms"] else ""
            cells = (subject["name"], duration(margin["worst_gap_ms"]), duration(margin["lease_ms"]), part)
            rows.append([(one_line(text, 200), "") for text in (*cells, str(margin["renewals"]))])
    if not rows:
        return []
    title = _title("margin: the longest gap between renewals, beside the lease", paint, width)
    return [*title, *_grid(["", "worst gap", "lease", "used", "renewals"], rows, paint, width)]


def _title(text: str, paint: Paint, width: int) -> list[str]:
    return [paint(line, "head") for line in textwrap.wrap(text, width)]


def _words(cell: Cell, notes: dict[str, int]) -> str:
    """What a cell says; where nothing could be said, with a number that leads to the reason."""
    if cell.status is not ABSENT and cell.status.key != "open":
        return cell.words
    reason = one_line(cell.worst[1]["reason"], 600)
    return f"{cell.words} [{notes.setdefault(reason, len(notes) + 1)}]" if reason else cell.words


def _notes(notes: dict[str, int], width: int) -> list[str]:
    out: list[str] = []
    for reason, number in notes.items():
        out += textwrap.wrap(f"[{number}] {reason}", width, initial_indent="  ", subsequent_indent="      ")
    return out


def _grid(heads: Sequence[str], rows: Rows, paint: Paint, width: int) -> list[str]:
    """A table no wider than width: words wrap inside a column, and columns that do not fit go into another block."""
    columns = [[heads[index], *(row[index][0] for row in rows)] for index in range(len(heads))]
    wide = [min(max(map(len, column)), _NAME_WIDTH) for column in columns]
    first = min(max(map(len, columns[0])), _FIRST_WIDTH, width // 2)
    narrow = [min(max(map(_longest_piece, column)), _NAME_WIDTH) for column in columns]
    narrow = [max(least, min(full, _LEAST_WIDTH)) for least, full in zip(narrow, wide, strict=True)]
    whole = 2 + first + sum(2 + each for each in wide[1:]) <= width
    widths = [first, *(wide if whole else narrow)[1:]]
    out: list[str] = []
    start = 1
    while start < len(heads):
        end, used = start, 2 + widths[0]
        while end < len(heads) and (end == start or used + 2 + widths[end] <= width):
            used += 2 + widths[end]
            end += 1
        chosen = [0, *range(start, end)]
        for line in [[(head, "head") for head in heads], *rows]:
            out += _row([line[index] for index in chosen], [widths[index] for index in chosen], paint)
        start = end
        if start < len(heads):
            out.append("")
    return out


def _row(cells: list[tuple[str, str]], widths: list[int], paint: Paint) -> list[str]:
    wrapped = [_wrap(text, width) for (text, _), width in zip(cells, widths, strict=True)]
    out = []
    for number in range(max(map(len, wrapped))):
        line = "  "
        for (_, key), lines, width in zip(cells, wrapped, widths, strict=True):
            shown = lines[number] if number < len(lines) else ""
            line += (paint(shown, key) if key and shown else shown) + " " * (width - len(shown) + 2)
        out.append(line.rstrip())
    return out


def _wrap(text: str, width: int) -> list[str]:
    """Lines of at most width, broken where _pieces() allows it, and anywhere only where that is not enough."""
    if len(text) <= width:
        return [text]
    lines, line = [], ""
    for piece in _pieces(text):
        if line and len(line) + len(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        while len(piece.rstrip()) > width:
            lines.append(piece[:width])
            piece = piece[width:]
        line += piece
    return [*lines, line.rstrip()] if line.strip() else lines


def _pieces(text: str) -> list[str]:
    """What must stay on one line: a verdict in its two words, the parts of a long name."""
    return [piece for word in _WORDS.findall(text) for piece in ([word] if len(word) <= 15 else _PARTS.findall(word))]


def _longest_piece(text: str) -> int:
    return max((len(piece.rstrip()) for piece in _pieces(text)), default=0)


_WORDS = re.compile(r"(?:double charge|no charge|DOUBLE CHARGE|NO CHARGE)[,]? *|\S+ *| +")
_PARTS = re.compile(r"[^.@-]{1,14}(?:[.@-]| *$)? *|[.@-] *")
