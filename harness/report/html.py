"""The report as one self-contained page: index.html, opened from disk, no network.

The first screen (verdict, matrix, what was run on what) is static; an experiment is drawn when it is opened, by
templates/script.js, from the compressed pieces of payload.py.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from harness.history import WITNESSES
from harness.report.compare import Change, headline
from harness.report.outcome import outcome
from harness.report.payload import Payload, payload
from harness.report.results import Run, write_atomically
from harness.report.statistics import clopper_pearson_upper
from harness.report.story import told
from harness.report.tables import Cell, failures, overview, recoveries, status, sweeps, tables
from harness.report.words import duration, one_line, plural, visible

PAGE_LIMIT = 3_000_000
"""Bytes that a page may have; see payload.py for what is left out when a run has more to tell."""

_TEMPLATES = Path(__file__).parent / "templates"
_SHORT = {"one": "one", "known": "double", "bad": "DOUBLE", "closed": "CLOSED", "open": "unclear", "na": "n/a"}


def render(run: Run, changes: list[Change] | None = None) -> str:
    """The page as text. changes: what compare() found, shown at the top."""
    style, script = _asset("style.css"), _asset("script.js")
    shown = _environment().get_template("index.html.j2")
    values: dict[str, Any] = {
        "run": run,
        "outcome": outcome(run),
        "overview": overview(run),
        "tables": tables(run),
        "sweeps": sweeps(run),
        "failures": failures(run)[:200],
        "failures_total": len(failures(run)),
        "recoveries": recoveries(run),
        "repeats": _repeats(run),
        "changes": changes,
        "changes_line": headline(changes) if changes is not None else "",
        "style": Markup(style),
        "script": Markup(script),
        "policy": _policy(style, script),
        "position": {(e["id"], e["run"], e.get("source")): i for i, e in enumerate(run["experiments"])},
    }
    empty = shown.render(**values, payload=Payload([], [], 0), index=Markup("{}"))
    where_cost = 12 * len(run["experiments"])
    budget = PAGE_LIMIT - len(empty.encode("utf-8", "replace")) - where_cost - 20_000
    packed = payload(run["experiments"], max(budget, 0))
    return shown.render(**values, payload=packed, index=_index(run, packed))


def write_html(run: Run, path: Path | str, changes: list[Change] | None = None) -> Path:
    """Writes the page atomically. Raises OSError with a message that says which file and why."""
    return write_atomically(Path(path), render(run, changes))


def _index(run: Run, packed: Payload) -> Markup:
    """What the script needs before it opens a piece: where each experiment is, and which belong to one cell."""
    groups: dict[tuple[str, str, str, str], list[int]] = {}
    for index, e in enumerate(run["experiments"]):
        groups.setdefault((e["scenario"], e["subject"], e["fault"], e["place"]), []).append(index)
    data = {
        "where": packed.where,
        "groups": [group for group in groups.values() if len(group) > 1],
        "witnesses": dict(WITNESSES),
    }
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _repeats(run: Run) -> list[dict[str, Any]]:
    """With several runs of everything: for each subject and fault how often it failed, and the bound on the rate."""
    if len({e["run"] for e in run["experiments"]}) < 2:
        return []
    groups: dict[tuple[str, str], list[bool]] = {}
    for e in run["experiments"]:
        if e["verdict"] not in ("inconclusive", "not-applicable"):
            groups.setdefault((e["subject"], e["fault"]), []).append(e["verdict"] != "exactly-one")
    return [
        {"subject": s, "fault": f, "wrong": sum(w), "runs": len(w), "upper": clopper_pearson_upper(sum(w), len(w))}
        for (s, f), w in groups.items()
    ]


def _policy(style: str, script: str) -> str:
    """A Content-Security-Policy that lets nothing in from anywhere: our own style and script by their hashes."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


@cache
def _asset(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        clean=one_line,
        visible=visible,
        duration=duration,
        plural=plural,
        tell=lambda e: one_line(told(e), 2000),
        short=_short,
        counted=_counted,
        ran=_ran,
        breakable=_breakable,
    )
    environment.globals["status"] = status
    return environment


def _short(cell: Cell) -> str:
    """A word for a square of the overview, or of the heat map."""
    if "NO CHARGE" in cell.words.upper():
        return "none" if cell.status.key == "known" else "NONE"
    return _SHORT[cell.status.key]


def _counted(cell: Cell) -> str:
    """At how many of its places a cell of the overview came out as it says; nothing where there is one."""
    total = sum(e["verdict"] != "not-applicable" for _, e in cell.experiments)
    return "" if total <= 1 else f"all {total}" if cell.count == total else f"{cell.count} of {total}"


def _breakable(name: str) -> Markup:
    """A boundary's name that breaks after a full stop where there is little room, and not within a word."""
    return Markup(".<wbr>").join(name.split("."))


def _ran(source: Mapping[str, Any]) -> str:
    """What was run on what, in one line: a run, or one of those that were merged."""
    stack, host = source["stack"], source["host"]
    parts = [
        f"{stack.get('kind', '?')} stack",
        str(stack.get("redis", "?")),
        f"Toxiproxy {stack.get('toxiproxy', '?')}",
        f"PostgreSQL {stack['postgres']}" if stack.get("postgres") else "no PostgreSQL",
        f"lease {source['ttl_ms']} ms",
        f"seed {source['seed']}",
        f"{host.get('os', '?')}, Python {host.get('python', '?')}, {host.get('cpus', '?')} CPUs",
        f"commit {(source['commit'] or 'unknown')[:12]}",
        f"{source['started'][:16].replace('T', ' ')}, {duration(source['wall_s'] * 1000)}",
    ]
    return " \N{MIDDLE DOT} ".join(parts)
