"""Two runs, before and after a change: which verdicts changed, in both directions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.report.results import Experiment, Run
from harness.report.tables import Status, status
from harness.report.words import one_line, plural

_NAMES = {
    "exactly-one": "exactly one charge",
    "double-charge": "double charge",
    "no-charge": "no charge",
    "inconclusive": "inconclusive",
    "not-applicable": "not applicable",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One experiment whose outcome is not what it was. before or after is None where one run does not have it.

    kind: worse, better, other, appeared or disappeared.
    """

    id: str
    kind: str
    before: Experiment | None
    after: Experiment | None

    @property
    def line(self) -> str:
        name = one_line(self.id, 160)
        if self.before is None or self.after is None:
            e = self.after or self.before
            return f"{name}: {self.kind} ({_NAMES[e['verdict']] if e else ''})"
        return f"{name}: {_said(self.before)} -> {_said(self.after)}"


_RANK = {"exactly-one": 0, "not-applicable": 1, "inconclusive": 2, "no-charge": 3, "double-charge": 4}
_ORDER = ("worse", "better", "other", "appeared", "disappeared")


def compare(before: Run, after: Run) -> list[Change]:
    """What changed, the worst first. Of repeated runs of one experiment the worst outcome counts."""
    old, new = _worst(before["experiments"]), _worst(after["experiments"])
    changes = []
    for key in dict.fromkeys([*new, *old]):
        was, now = old.get(key), new.get(key)
        if was is None or now is None:
            changes.append(Change(key, "appeared" if was is None else "disappeared", was, now))
        elif was["verdict"] != now["verdict"] or status(was) != status(now):
            changes.append(Change(key, _kind(was, now), was, now))
    return sorted(changes, key=lambda change: _ORDER.index(change.kind))


def headline(changes: list[Change]) -> str:
    """ "2 verdicts are worse, 1 is better" in one line."""
    counts = {kind: sum(change.kind == kind for change in changes) for kind in _ORDER}
    parts = [
        plural(counts["worse"], "verdict is", "verdicts are") + " worse" if counts["worse"] else "",
        plural(counts["better"], "verdict is", "verdicts are") + " better" if counts["better"] else "",
        plural(counts["other"], "verdict") + " changed otherwise" if counts["other"] else "",
        plural(counts["appeared"], "experiment is", "experiments are") + " new" if counts["appeared"] else "",
        plural(counts["disappeared"], "experiment is", "experiments are") + " gone" if counts["disappeared"] else "",
    ]
    return ", ".join(part for part in parts if part) or "No verdict changed"


def _kind(was: Experiment, now: Experiment) -> str:
    if was["verdict"] == now["verdict"]:
        return "other"
    return "worse" if _RANK[now["verdict"]] > _RANK[was["verdict"]] else "better"


def _worst(experiments: Iterable[Experiment]) -> dict[str, Experiment]:
    """By id, the experiment with the gravest verdict."""
    found: dict[str, Experiment] = {}
    for e in experiments:
        known = found.get(e["id"])
        if known is None or _RANK[e["verdict"]] > _RANK[known["verdict"]]:
            found[e["id"]] = e
    return found


def _said(e: Experiment) -> str:
    found: Status = status(e)
    declared = (
        " (declared)" if found.key == "known" else " (declared hole did not show)" if found.key == "closed" else ""
    )
    return _NAMES[e["verdict"]] + declared
