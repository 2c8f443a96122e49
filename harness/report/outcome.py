"""One line for a whole run: what a green one has shown, or why it is not green."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from harness.report.results import Run
from harness.report.tables import BASELINE, status
from harness.report.words import listing, one_line, plural


@dataclass(frozen=True, slots=True)
class Outcome:
    """green: everything came out as declared. lead: the verdict in one sentence; rest: what it rests on, or nothing."""

    green: bool
    lead: str
    rest: str = ""

    @property
    def line(self) -> str:
        return f"{self.lead} {self.rest}".rstrip()

    @property
    def key(self) -> str:
        return "good" if self.green else "wrong"


def outcome(run: Run) -> Outcome:
    """What the run as a whole came to. A run that shows nothing is never green."""
    experiments = run["experiments"]
    if not experiments:
        return Outcome(False, "Not green: nothing was run, so nothing was shown.")
    verdicts = Counter(status(e).words for e in experiments)
    problems = [
        plural(verdicts["DOUBLE CHARGE"], "double charge") + " that nobody declared"
        if verdicts["DOUBLE CHARGE"]
        else "",
        plural(verdicts["NO CHARGE"], "customer") + " never charged" if verdicts["NO CHARGE"] else "",
        plural(verdicts["ONE (hole closed)"], "declared hole") + " that did not show"
        if verdicts["ONE (hole closed)"]
        else "",
        plural(verdicts["inconclusive"], "experiment") + " inconclusive" if verdicts["inconclusive"] else "",
    ]
    blank = _nothing_shown(run)
    untried = [name for name in _untried(run) if name not in blank]
    for told, names in (("nothing conclusive about", blank), ("no fault was tried on", untried)):
        if names:
            problems.append(f"{told} {listing([one_line(name, 80) for name in names])}")
    problems += [
        f"{one_line(item['id'], 120)} came out differently in two runs" for item in run.get("disagreements", [])[:3]
    ]
    if run["partial"]:
        problems.append("interrupted before it was through")
    problems = [problem for problem in problems if problem]
    count = len(experiments)
    if problems:
        held = _shown(run, verdicts)
        rest = f"Of {plural(count, 'experiment')}: {'; '.join(held)}." if held else ""
        return Outcome(False, f"Not green: {'; '.join(problems)}.", rest)
    lead = f"Green: all {plural(count, 'experiment')} came out as declared."
    return Outcome(
        True, lead, f"{_capital('; '.join(_shown(run, verdicts)))}. It speaks of these faults, of no others."
    )


def _shown(run: Run, verdicts: Counter[str]) -> list[str]:
    once = [e for e in run["experiments"] if status(e).words == "one"]
    tried = sum(e["landed"] and e["contended"] and e["scenario"] != BASELINE for e in once)
    calm = sum(e["scenario"] == BASELINE for e in once)
    parts = []
    if tried:
        survived = "the fault landed, a second worker contended, and the customer was charged exactly once"
        parts.append(f"{plural(tried, 'time')} {survived}")
    if calm:
        parts.append(f"{plural(calm, 'baseline')} without a fault")
    if len(once) > tried + calm:
        parts.append(f"{len(once) - tried - calm:,} charged once, with no fault seen to survive")
    if verdicts["double charge (reproduced)"]:
        parts.append(f"{plural(verdicts['double charge (reproduced)'], 'declared double charge')} reproduced")
    if verdicts["no charge (reproduced)"]:
        parts.append(f"{plural(verdicts['no charge (reproduced)'], 'declared missing charge')} reproduced")
    if verdicts["n/a"]:
        parts.append(f"{verdicts['n/a']:,} not applicable")
    return parts


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _nothing_shown(run: Run) -> list[str]:
    """Subjects of which every experiment was inconclusive or not applicable."""
    conclusive = {e["subject"] for e in run["experiments"] if e["verdict"] not in ("inconclusive", "not-applicable")}
    tried = dict.fromkeys(e["subject"] for e in run["experiments"])
    return [name for name in tried if name not in conclusive]


def _untried(run: Run) -> list[str]:
    """The user's own subjects on which no fault came to a conclusion, whatever -k and --deselect have left of the run.

    A built-in variant may be left out, and a fault need not concern it; a run in which no fault concerned anybody has
    shown nothing all the same.
    """
    own = [subject["name"] for subject in run["subjects"] if subject["kind"] != "variant"]
    faulty = [e for e in run["experiments"] if e["scenario"] != BASELINE]
    tried = {e["subject"] for e in faulty if e["verdict"] not in ("inconclusive", "not-applicable")}
    untried = [name for name in own if name not in tried]
    return untried or ([] if tried or not faulty else ["anything"])
