"""How a scenario file declares its experiments: @experiments(...) on a test that takes the fixture `experiment`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from harness.crew import SubjectError
from harness.errors import DoubleCharge, ExperimentFailed, HoleClosed, Inconclusive, NoCharge
from harness.processes import HarnessError
from harness.report import failure_text, properties
from harness.report.results import Experiment
from harness.settings import CONTROL, Settings, variant
from harness.spec import DOUBLE_CHARGE, EXACTLY_ONE, INCONCLUSIVE, NO_CHARGE, NOT_APPLICABLE, Spec
from harness.stack import StackError
from harness.variants import SCENARIO_ONLY

if TYPE_CHECKING:
    from harness.host import Host

CANNOT_START = (StackError, SubjectError, HarnessError)
"""What starting the engine may raise: nothing was run."""

T = TypeVar("T", bound=Callable[..., Any])

RAISES: Mapping[str, type[ExperimentFailed]] = {
    DOUBLE_CHARGE: DoubleCharge,
    NO_CHARGE: NoCharge,
    INCONCLUSIVE: Inconclusive,
}


@dataclass(frozen=True, slots=True)
class Hole:
    """A (fault, place) at which a subject is known to fail, and why. Strict both ways: it has to show."""

    reason: str
    verdict: str = DOUBLE_CHARGE


Holes = Mapping[tuple[str, str], Hole | str]
"""(subject, place) -> the hole; a plain string is a double charge."""


def experiments(
    fault: str, *, places: Sequence[str], holes: Holes | None = None, scenario: str | None = None,
    subjects: Sequence[str] | None = None, **params: Any,
) -> Callable[[T], T]:  # fmt: skip
    """Declares one experiment for each subject and place. subjects: these built-in ones only, and the user's own."""
    mark: Callable[[T], T] = pytest.mark.experiments(
        fault,
        places=tuple(places),
        holes=dict(holes or {}),
        scenario=scenario or fault,
        subjects=subjects,
        params=params,
    )
    return mark


@dataclass(frozen=True, slots=True)
class Declared:
    """An experiment that a test has declared, and the control that has to show its hole beside it."""

    spec: Spec
    control: Spec | None = None


def declared(mark: pytest.Mark, settings: Settings) -> list[Declared]:
    """The experiments of one mark, for the subjects of this run.

    --harness-runs repeats those of one's own lock; the control beside it shows its holes once.
    """
    fault, wanted = mark.args[0], mark.kwargs
    found: list[Declared] = []
    only = [variant(name) for name in wanted["subjects"] or () if name in SCENARIO_ONLY]
    for subject in [*settings.subjects, *([] if settings.own is not None or settings.narrowed else only)]:
        own = settings.is_own(subject.name)
        if not own and wanted["subjects"] is not None and subject.name not in wanted["subjects"]:
            continue
        for place in wanted["places"]:
            for run in range(1, settings.runs_of(subject.name) + 1):
                spec = _spec(fault, wanted, settings, subject.name, place, run)
                if own and (reason := settings.holes.get((fault, place))) is not None:
                    spec = spec.expecting(DOUBLE_CHARGE, reason)
                control = _spec(fault, wanted, settings, CONTROL, place, 1) if own else None
                found.append(Declared(spec, control if control is not None and control.hole is not None else None))
    return found


def _spec(fault: str, wanted: Mapping[str, Any], settings: Settings, subject: str, place: str, run: int) -> Spec:
    params = {
        "delay_leases": settings.delay_leases,
        "slower_night_leases": 2 * settings.delay_leases,
        **wanted["params"],
    }
    spec = Spec(wanted["scenario"], subject, fault, place, settings.ttl_ms, run=run, seed=settings.seed, params=params)
    hole = wanted["holes"].get((subject, place))
    if hole is None:
        return spec
    hole = Hole(hole) if isinstance(hole, str) else hole
    return spec.expecting(hole.verdict, hole.reason)


def parameter(item: Declared) -> Any:
    """The pytest parameter of an experiment: a known hole is a strict xfail that only its own failure satisfies."""
    spec = item.spec
    name = f"{spec.subject}-{spec.place}" + (f"-run{spec.run}" if spec.run > 1 else "")
    marks = []
    if spec.expected != EXACTLY_ONE:
        marks.append(pytest.mark.xfail(strict=True, raises=RAISES[spec.expected], reason=spec.hole or ""))
    return pytest.param(item, id=name, marks=marks)


@dataclass(frozen=True, slots=True)
class SweepOf:
    """A subject to be swept, and its declared holes: (fault, boundary) -> hole."""

    subject: str
    holes: Mapping[tuple[str, str], Hole | str]


def sweeps(holes: Mapping[str, Mapping[tuple[str, str], Hole | str]]) -> Callable[[T], T]:
    """Declares one sweep for each subject on a test that takes the fixture `sweep`. holes: by subject."""
    mark: Callable[[T], T] = pytest.mark.sweep(holes=dict(holes))
    return mark


def sweep_subjects(mark: pytest.Mark, settings: Settings) -> list[SweepOf]:
    """The sweeps of one mark, for the subjects of this run."""
    found = []
    for subject in settings.subjects:
        own = settings.is_own(subject.name)
        holes = {key: reason for key, reason in settings.holes.items() if key[1].count(".") == 3}
        found.append(SweepOf(subject.name, holes if own else mark.kwargs["holes"].get(subject.name, {})))
    return found


def parameters(mark: pytest.Mark, settings: Settings) -> list[Any]:
    """The pytest parameters of a mark: experiments or sweeps of the subjects of this run."""
    if mark.name == "sweep":
        return [pytest.param(item, id=item.subject) for item in sweep_subjects(mark, settings)]
    return [parameter(item) for item in declared(mark, settings)]


def submit(wanted: Sequence[Any], host: Host) -> None:
    """Puts what the tests have declared into the run. Raises one of CANNOT_START."""
    experiments = [item for item in wanted if isinstance(item, Declared)]
    host.submit([spec for item in experiments for spec in (item.spec, item.control) if spec is not None])
    for item in wanted:
        if isinstance(item, SweepOf):
            host.submit_sweep(item.subject, item.holes)


def await_experiment(item: Declared, host: Host) -> tuple[Result, list[tuple[str, str]]]:
    """An experiment's result, and its properties for JUnit. Raises HarnessError."""
    record = host.result(item.spec, item.control)
    return Result(record), properties(record)


@dataclass(frozen=True, slots=True)
class Result:
    """What a test gets: one experiment that has run."""

    record: Experiment

    def charged_exactly_once(self) -> None:
        """Passes for exactly one charge; skips what does not apply.

        Raises DoubleCharge, NoCharge or Inconclusive, and HoleClosed for a single charge where a hole was declared.
        """
        __tracebackhide__ = True
        verdict = self.record["verdict"]
        if verdict == NOT_APPLICABLE:
            pytest.skip(f"not applicable: {self.record['reason']}")
        if verdict == self.record["expected"] != EXACTLY_ONE and not self.record["landed"]:
            raise Inconclusive("the declared hole showed, but its fault was not seen to land\n\n" + self.explained())
        if verdict != EXACTLY_ONE:
            raise RAISES[verdict](self.explained())
        if self.record["expected"] != EXACTLY_ONE:
            raise HoleClosed(self.explained())

    def explained(self) -> str:
        """Headline, timeline, story and the command that replays it."""
        return failure_text(self.record)
