"""Learns each subject before it is tried: a baseline first, its boundaries where something wants to know them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from harness import sweep
from harness.attempts import Attempts
from harness.baseline import Observer, complaint
from harness.benches import Benches
from harness.crew import Crew
from harness.experiment import Outcome
from harness.jobqueue import A_ENDS_WITHIN_LEASES
from harness.profile import Profile
from harness.spec import EXACTLY_ONE, Spec

BASELINE = "baseline"


class Learning:
    """What is known of each subject, learned once, by whoever asks first."""

    def __init__(self, attempts: Attempts, benches: Benches, crews: Mapping[str, Crew], ttl_ms: int, seed: int) -> None:
        self.profiles: dict[str, Profile] = {}
        self._attempts = attempts
        self._benches = benches
        self._crews = crews
        self._ttl_ms = ttl_ms
        self._seed = seed
        self._ready: dict[str, asyncio.Future[str | None]] = {}
        self._rehearsed: dict[str, asyncio.Future[None]] = {}

    @property
    def _tasks(self) -> list[asyncio.Future[Any]]:
        return [*self._ready.values(), *self._rehearsed.values()]

    @property
    def settled(self) -> bool:
        """Whether nothing is being learned."""
        return all(task.done() for task in self._tasks)

    async def stop(self) -> None:
        """What is being learned is abandoned."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def spec(self, subject: str) -> Spec:
        """The baseline as an experiment."""
        return Spec(BASELINE, subject, "none", "none", self._ttl_ms, seed=self._seed)

    async def ready(self, subject: str) -> str | None:
        """Runs a subject's baseline, once; None when it is fit to be tried, else what is wrong with it."""
        if subject not in self._ready:
            self._ready[subject] = asyncio.ensure_future(self._baseline(subject))
        return await asyncio.shield(self._ready[subject])

    async def _baseline(self, subject: str) -> str | None:
        spec = self.spec(subject)
        entry = self._attempts.entry(spec)
        warmed = False
        while True:
            observers: list[Observer] = []
            async with self._attempts.turn(spec):
                outcome = await self._benches.run(spec, Profile(subject), observers)
            if self._attempts.worth_repeating(entry, outcome):
                entry.attempts.append(outcome)
            elif outcome.verdict.kind == EXACTLY_ONE and observers[0].scripts_were_new and not warmed:
                warmed = True
            else:
                break
        self._attempts.finish(entry, outcome)
        if not observers:
            self.profiles[subject] = Profile(subject)
            return outcome.verdict.reason
        profile = observers[0].learn(subject)
        self.profiles[subject] = profile
        factor = self._crews[subject].subject.lease_factor
        if broken := outcome.history.select("harness-failed"):
            return str(broken[0].detail.get("reason"))
        wrong = _hung(outcome) or complaint(profile, self._ttl_ms, factor)
        if wrong is None and outcome.verdict.kind != EXACTLY_ONE:
            wrong = f"without any fault the verdict is {outcome.verdict.kind}: {outcome.verdict.reason}"
        return wrong if wrong is None else wrong + _last_words(outcome.workers)

    async def rehearse(self, subject: str) -> None:
        """Learns a subject's boundaries, once: until two runs agree, or four times. Its baseline has been run."""
        if subject not in self._rehearsed:
            self._rehearsed[subject] = asyncio.ensure_future(self._rehearse(subject))
        await asyncio.shield(self._rehearsed[subject])

    async def _rehearse(self, subject: str) -> None:
        profile = self.profiles[subject]
        clean: list[list[str]] = [list(profile.boundaries)]
        held: list[list[str]] = []

        async def once(runs: list[list[str]], hold: bool) -> None:
            spec = self.spec(subject)
            async with self._attempts.turn(spec), self._benches.bench(spec, profile) as bench:
                runs.append(await sweep.rehearse(bench, self._benches.setup_of(subject), held=hold))

        await asyncio.gather(once(clean, False), once(held, True), once(held, True))
        for runs, hold in ((clean, False), (held, True)):
            while not sweep.agree(runs) and len(runs) < sweep.REHEARSALS:
                await once(runs, hold)
        self.profiles[subject] = sweep.with_boundaries(profile, clean, held)


def _hung(outcome: Outcome) -> str | None:
    hung = outcome.history.select("killed")
    if not hung:
        return None
    return f"{hung[0].who} did not end within {A_ENDS_WITHIN_LEASES} leases, with nothing wrong, and was killed"


def _last_words(workers: Sequence[Mapping[str, Any]]) -> str:
    """What every worker that failed said last, for a message: its last line first, where there is room for little."""
    last, output = "", ""
    for worker in workers:
        if worker["exit"] not in (0, 75):
            lines = str(worker["log"]).strip().splitlines()[-12:] or ["(no output)"]
            last += f"\n{worker['name']} ended with status {worker['exit']}: {lines[-1].strip()}"
            output += f"\n{worker['name']}'s last output:\n  " + "\n  ".join(lines)
    return f".{last}{output}" if last else ""
