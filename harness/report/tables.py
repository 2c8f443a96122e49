"""The run as tables: which experiments make up which cell, and what a cell says.

Terminal, page and step summary all print these tables, so they say the same of the same run.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from harness.report.results import Experiment, Run

SWEEP = "every-boundary"
"""The scenario that the sweep's experiments belong to."""


CRASH = "crash"
"""The scenario, and the fault, whose recovery the crash table is about."""

BASELINE = "baseline"
"""The scenario without a fault that comes before the others."""


@dataclass(frozen=True, slots=True)
class Status:
    """What came out, in a key for colours and in words. failed: it makes the run fail."""

    key: str
    words: str
    mark: str
    severity: int
    failed: bool


ONE = Status("one", "one", "\N{CHECK MARK}", 1, False)
KNOWN = Status("known", "double charge (reproduced)", "\N{DIGIT TWO}\N{MULTIPLICATION SIGN}", 4, False)
KNOWN_NONE = Status("known", "no charge (reproduced)", "0\N{MULTIPLICATION SIGN}", 3, False)
DOUBLE = Status("bad", "DOUBLE CHARGE", "2\N{MULTIPLICATION SIGN}", 9, True)
NONE = Status("bad", "NO CHARGE", "0\N{MULTIPLICATION SIGN}", 8, True)
CLOSED = Status("closed", "ONE (hole closed)", "!", 7, True)
OPEN = Status("open", "inconclusive", "?", 6, True)
ABSENT = Status("na", "n/a", "\N{EN DASH}", 0, False)


def status(experiment: Experiment) -> Status:
    """What an experiment came to, beside what was declared: a declared hole that shows is no failure, one that does
    not show is, and so is everything that nothing can be concluded from."""
    verdict, expected = experiment["verdict"], experiment["expected"]
    if verdict == "not-applicable":
        return ABSENT
    if verdict == "inconclusive":
        return OPEN
    if verdict == "double-charge":
        return KNOWN if expected == "double-charge" else DOUBLE
    if verdict == "no-charge":
        return KNOWN_NONE if expected == "no-charge" else NONE
    return ONE if expected == "exactly-one" else CLOSED


@dataclass(frozen=True, slots=True)
class Cell:
    """All experiments of one subject, fault and place: several where the run repeats itself or was merged."""

    experiments: tuple[tuple[int, Experiment], ...]

    @property
    def worst(self) -> tuple[int, Experiment]:
        """Position in the run, and experiment, of the one the cell is named after."""
        return max(self.experiments, key=lambda item: (status(item[1]).severity, -item[0]))

    @property
    def status(self) -> Status:
        return status(self.worst[1])

    @property
    def count(self) -> int:
        """How many of the experiments came out as the worst one did."""
        worst = self.status
        return sum(status(item[1]) is worst for item in self.experiments)

    @property
    def words(self) -> str:
        """What the cell says: the worst outcome, and how often where not always."""
        total = len(self.experiments)
        if total == 1 or self.status is ABSENT:
            return self.status.words
        return (
            f"{self.status.words}, {self.count} of {total}"
            if self.count < total
            else f"{self.status.words}, {total} runs"
        )


@dataclass(frozen=True, slots=True)
class Table:
    """One scenario: subjects down, (fault, place) across; a cell is None where nothing was run."""

    scenario: str
    columns: tuple[tuple[str, str], ...]
    subjects: tuple[str, ...]
    cells: dict[tuple[str, tuple[str, str]], Cell]

    def cell(self, subject: str, column: tuple[str, str]) -> Cell | None:
        return self.cells.get((subject, column))

    def heading(self, column: tuple[str, str]) -> tuple[str, str]:
        """(fault, place) as the column's heads; empty where they would say nothing."""
        fault, place = column
        if fault == place:
            return "", "no fault" if fault == "none" else place
        return "" if self.one_fault else fault, place

    @property
    def one_fault(self) -> bool:
        """Whether a column is named well enough by its place."""
        return len({fault for fault, _ in self.columns}) == 1


@dataclass(frozen=True, slots=True)
class Sweep:
    """One subject swept: boundaries down, faults across."""

    subject: str
    boundaries: tuple[str, ...]
    faults: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]
    sentence: str

    def cell(self, boundary: str, fault: str) -> Cell | None:
        return self.cells.get((boundary, fault))

    @property
    def points(self) -> int:
        return sum(cell.status is not ABSENT for cell in self.cells.values())

    def broken(self, boundary: str) -> bool:
        """Whether anything but exactly one charge came out at this boundary."""
        found = (self.cell(boundary, fault) for fault in self.faults)
        return any(cell is not None and cell.status.key not in ("one", "na") for cell in found)


def tables(run: Run) -> list[Table]:
    """One table for each scenario but the sweep, in the order of the run."""
    order = [subject["name"] for subject in run["subjects"]]
    made = []
    for scenario in _unique(e["scenario"] for e in run["experiments"] if e["scenario"] != SWEEP):
        mine = [(i, e) for i, e in enumerate(run["experiments"]) if e["scenario"] == scenario]
        groups: dict[tuple[str, tuple[str, str]], list[tuple[int, Experiment]]] = {}
        for item in mine:
            groups.setdefault((item[1]["subject"], (item[1]["fault"], item[1]["place"])), []).append(item)
        subjects = _unique(e["subject"] for _, e in mine)
        made.append(
            Table(
                scenario,
                tuple(_unique((e["fault"], e["place"]) for _, e in mine)),
                tuple(sorted(subjects, key=lambda name: order.index(name) if name in order else len(order))),
                {key: Cell(tuple(group)) for key, group in groups.items()},
            )
        )
    return made


def sweeps(run: Run) -> list[Sweep]:
    """One heat map for each subject that was swept."""
    mine = [(i, e) for i, e in enumerate(run["experiments"]) if e["scenario"] == SWEEP]
    made = []
    for subject in _unique(e["subject"] for _, e in mine):
        groups: dict[tuple[str, str], list[tuple[int, Experiment]]] = {}
        for item in mine:
            if item[1]["subject"] == subject:
                groups.setdefault((item[1]["place"], item[1]["fault"]), []).append(item)
        declared = run.get("sweep", {}).get(subject, {})
        boundaries = _unique([*declared.get("boundaries", ()), *(place for place, _ in groups)])
        faults = _unique([*declared.get("faults", ()), *(fault for _, fault in groups)])
        cells = {key: Cell(tuple(group)) for key, group in groups.items()}
        sweep = Sweep(subject, tuple(boundaries), tuple(faults), cells, "")
        made.append(replace(sweep, sentence=declared.get("sentence") or tell(sweep)))
    return made


def tell(sweep: Sweep) -> str:
    """ "charged twice at 6 of 72 fault points; first: freeze at processor.post-v1-charges.1.request" """
    parts, points = [], sweep.points
    for verdict, words in (("double-charge", "charged twice"), ("no-charge", "never charged")):
        found = [
            f"{fault} at {boundary}"
            for boundary in sweep.boundaries
            for fault in sweep.faults
            if (cell := sweep.cell(boundary, fault)) is not None
            and any(e["verdict"] == verdict for _, e in cell.experiments)
        ]
        if found:
            parts.append(f"{words} at {len(found)} of {points} fault points; first: {found[0]}")
    unclear = sum(cell.status is OPEN for cell in sweep.cells.values())
    if unclear:
        parts.append(f"nothing to conclude at {unclear}")
    return "; ".join(parts) or f"exactly one charge at each of {points} fault points"


@dataclass(frozen=True, slots=True)
class Recovery:
    """After a crash: how long the customer stayed locked for the next worker, beside the lease. One row a subject.

    shortest_s, longest_s: over all places it was killed at; index: the experiment that took longest.
    """

    subject: str
    points: int
    shortest_s: float
    longest_s: float
    index: int
    lease_s: float | None

    @property
    def range(self) -> tuple[float, ...]:
        """What to say: one number where it was measured once."""
        return (self.longest_s,) if self.points == 1 else (self.shortest_s, self.longest_s)


def recoveries(run: Run) -> list[Recovery]:
    """Every subject that was killed in the crash scenario, in the order of the run.

    The sweep's crashes are left out, and so are other faults that leave a customer locked (a lost reply to SET NX).
    """
    lease = {s["name"]: s["lease_ms"] for s in run["subjects"]}
    measured: dict[str, list[tuple[float, int]]] = {}
    for index, e in enumerate(run["experiments"]):
        if e["recovery_s"] is not None and e["scenario"] == e["fault"] == CRASH:
            measured.setdefault(e["subject"], []).append((float(e["recovery_s"]), index))
    rows = []
    for subject in sorted(measured, key=lambda name: list(lease).index(name) if name in lease else len(lease)):
        lease_ms, found = lease.get(subject), measured[subject]
        longest_s, index = max(found)
        lease_s = None if lease_ms is None else lease_ms / 1000
        rows.append(Recovery(subject, len(found), min(found)[0], longest_s, index, lease_s))
    return rows


@dataclass(frozen=True, slots=True)
class Overview:
    """The whole run on one screen: subjects down, scenarios across, each cell all places of the scenario."""

    scenarios: tuple[str, ...]
    subjects: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]

    def cell(self, subject: str, scenario: str) -> Cell | None:
        return self.cells.get((subject, scenario))


def overview(run: Run) -> Overview:
    """Every experiment of the run, in as few cells as there are subjects times scenarios."""
    groups: dict[tuple[str, str], list[tuple[int, Experiment]]] = {}
    for index, e in enumerate(run["experiments"]):
        groups.setdefault((e["subject"], e["scenario"]), []).append((index, e))
    names = [s["name"] for s in run["subjects"]]
    subjects = _unique([*(n for n in names if any(key[0] == n for key in groups)), *(key[0] for key in groups)])
    scenarios = sorted(_unique(e["scenario"] for e in run["experiments"]), key=lambda name: name != BASELINE)
    return Overview(tuple(scenarios), tuple(subjects), {key: Cell(tuple(group)) for key, group in groups.items()})


def failures(run: Run) -> list[tuple[int, Experiment]]:
    """The experiments that make the run fail, worst first, with their position in the run."""
    failed = [(i, e) for i, e in enumerate(run["experiments"]) if status(e).failed]
    return sorted(failed, key=lambda item: (-status(item[1]).severity, item[0]))


_T = TypeVar("_T", bound=Hashable)


def _unique(items: Iterable[_T]) -> list[_T]:
    return list(dict.fromkeys(items))
