"""Every boundary, every fault: what there is to try for a subject, and what came of it.

Worker A's run is a sequence of messages on its links. Two recorded runs give their names: one clean, and one with the
charge held for 1.2 leases, so that renewals are boundaries too. Names are rehearsed until two runs agree.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.bench import Bench
from harness.experiment import Prepare
from harness.faults import HELD_LEASES
from harness.jobqueue import A_ENDS_WITHIN_LEASES
from harness.jobs import direct_job
from harness.network.tap import Fate, Message
from harness.profile import Profile
from harness.scenario import Hole
from harness.spec import DOUBLE_CHARGE, EXACTLY_ONE, INCONCLUSIVE, NO_CHARGE, NOT_APPLICABLE, Spec

SCENARIO = "every-boundary"
FAULTS = ("freeze", "hold", "crash", "lose")
REHEARSALS = 4

BoundaryHoles = Mapping[tuple[str, str], Hole | str]
"""(fault, boundary) -> the hole, for one subject."""


async def rehearse(bench: Bench, setup: Prepare | None, *, held: bool) -> list[str]:
    """Runs A alone, with nothing wrong (held: its charge request takes 1.2 leases), and returns its boundaries.

    setup: what is to be done before, as before every experiment; HarnessError when it fails.
    """
    seen: list[str] = []

    def note(worker: str, message: Message) -> None:
        if worker == "A":
            seen.append(message.boundary)

    async def hold(message: Message) -> Fate:
        await asyncio.sleep(HELD_LEASES * bench.lease_s)
        return Fate.DELIVER

    bench.on_message.append(note)
    if held and "charge" in bench.profile.points:
        bench.at_boundary[f"{bench.profile.points['charge']}.request"] = hold
    try:
        await bench.prepare()
        if setup is not None:
            await setup(direct_job(bench))
        worker = await bench.deliver("A")
        if worker is not None:
            await bench.ended(worker, A_ENDS_WITHIN_LEASES * bench.lease_s)
    finally:
        await bench.close()
    return seen


def with_boundaries(profile: Profile, clean: Sequence[Sequence[str]], held: Sequence[Sequence[str]]) -> Profile:
    """The profile with the boundaries on which the last two runs of each kind agree; the others are unstable."""
    stable_clean = _agreed(clean)
    stable_held = [name for name in _agreed(held) if name not in stable_clean]
    every = dict.fromkeys(name for run in (*clean, *held) for name in run)
    unstable = [name for name in every if name not in stable_clean and name not in stable_held]
    renewals = sum(name.endswith(".request") for name in stable_held)
    return replace(
        profile,
        boundaries=tuple(stable_clean),
        held_boundaries=tuple(stable_held),
        unstable=tuple(unstable),
        renewals=renewals,
    )


def agree(runs: Sequence[Sequence[str]]) -> bool:
    """Whether the last two runs had the same boundaries, in whatever order two connections interleaved them."""
    return len(runs) > 1 and set(runs[-1]) == set(runs[-2])


def _agreed(runs: Sequence[Sequence[str]]) -> list[str]:
    last, before = runs[-1], set(runs[-2])
    return [name for name in dict.fromkeys(last) if name in before]


def specs(profile: Profile, ttl_ms: int, runs: int, seed: int, holes: BoundaryHoles) -> list[Spec]:
    """One experiment for each boundary and fault, and run."""
    found = []
    for boundary in profile.known:
        for fault in FAULTS:
            for run in range(1, runs + 1):
                spec = Spec(SCENARIO, profile.subject, fault, boundary, ttl_ms, run=run, seed=seed)
                hole = holes.get((fault, boundary))
                if hole is not None:
                    hole = Hole(hole) if isinstance(hole, str) else hole
                    spec = spec.expecting(hole.verdict, hole.reason)
                found.append(spec)
    return found


@dataclass(frozen=True, slots=True)
class Point:
    """One experiment of a sweep, as far as its test needs it; told is the whole explanation of a surprise."""

    spec: Spec
    verdict: str
    reason: str
    told: str | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """A subject's sweep, done."""

    subject: str
    boundaries: tuple[str, ...]
    faults: tuple[str, ...]
    unstable: tuple[str, ...]
    points: tuple[Point, ...]
    runs: int
    declared: tuple[tuple[str, str], ...] = ()
    """(fault, boundary) of every declared hole."""
    wrong: str | None = None
    """Why there was nothing to sweep."""

    def failures(self) -> list[Point]:
        return [point for point in self.points if point.verdict in (DOUBLE_CHARGE, NO_CHARGE)]

    def sentence(self) -> str:
        """charged twice at 6 of 72 fault points; first: freeze at processor.post-v1-charges.1.request"""
        parts = []
        every = len(self.boundaries) * len(self.faults)
        for verdict, words in ((DOUBLE_CHARGE, "charged twice"), (NO_CHARGE, "never charged")):
            at = list(dict.fromkeys((p.spec.fault, p.spec.place) for p in self.points if p.verdict == verdict))
            if at:
                parts.append(f"{words} at {len(at)} of {every} fault points; first: {at[0][0]} at {at[0][1]}")
        count = Counter(point.verdict for point in self.points)
        if not parts:
            parts.append(f"charged exactly once at {count[EXACTLY_ONE]} of {len(self.points)} fault points")
        if count[INCONCLUSIVE]:
            parts.append(f"{count[INCONCLUSIVE]} inconclusive")
        if count[NOT_APPLICABLE]:
            parts.append(f"{count[NOT_APPLICABLE]} not applicable")
        return "; ".join(parts)

    def complaints(self) -> list[str]:
        """What keeps the sweep from being as declared: surprises with their explanation, and missing experiments."""
        if self.wrong is not None:
            return [self.wrong]
        found = [point.told for point in self.points if point.told is not None]
        wanted = len(self.boundaries) * len(self.faults) * self.runs
        if wanted != len(self.points) or not wanted:
            found.append(
                f"{len(self.boundaries)} boundaries x {len(self.faults)} faults x {self.runs} runs are {wanted} "
                f"experiments, but {len(self.points)} were reported"
            )
        known = set(self.boundaries)
        gone = [f"{fault}@{boundary}" for fault, boundary in self.declared if boundary not in known]
        if gone:
            found.append(
                f"holes are declared at {', '.join(gone)}, which {self.subject} does not have (any more); "
                f"it has {', '.join(self.boundaries)}"
            )
        return found
