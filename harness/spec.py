"""What an experiment is to be, before it runs: subject, fault, place, and the token that replays it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

EXACTLY_ONE = "exactly-one"
DOUBLE_CHARGE = "double-charge"
NO_CHARGE = "no-charge"
INCONCLUSIVE = "inconclusive"
NOT_APPLICABLE = "not-applicable"

_TOKEN = re.compile(
    r"(?P<subject>[a-z0-9][a-z0-9.-]*):(?P<fault>[a-z0-9-]+)@(?P<place>[a-z0-9.-]+)"
    r"(?::run=(?P<run>[0-9]{1,9}))?(?::seed=(?P<seed>[0-9]{1,19}))?"
)


class BadToken(ValueError):
    """Not a replay token: says what one looks like."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One experiment to run.

    place is a boundary (link.label.n.side) or a place that the fault names. expected is the verdict that keeps the
    run green; hole is the declared reason when that is not exactly-one. params are numbers a scenario sets (delay as
    a multiple of the lease, ...).
    """

    scenario: str
    subject: str
    fault: str
    place: str
    ttl_ms: int
    expected: str = EXACTLY_ONE
    hole: str | None = None
    run: int = 1
    seed: int = 0
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def id(self) -> str:
        """slow-charge/naive-ttl/before-commit; the fault is named too where a scenario has several."""
        place = self.place if self.fault == self.scenario else f"{self.fault}@{self.place}"
        return f"{self.scenario}/{self.subject}/{place}" + (f"/run-{self.run}" if self.run > 1 else "")

    @property
    def token(self) -> str:
        """The replay token, which needs no quoting in a shell."""
        jitter = f":run={self.run}:seed={self.seed}" if self.run > 1 else ""
        return f"{self.subject}:{self.fault}@{self.place}{jitter}"

    def expecting(self, verdict: str, reason: str) -> Self:
        return replace(self, expected=verdict, hole=reason)


@dataclass(frozen=True, slots=True)
class Token:
    """A replay token taken apart."""

    subject: str
    fault: str
    place: str
    run: int = 1
    seed: int | None = None

    @classmethod
    def parse(cls, text: str) -> Token:
        """Raises BadToken."""
        match = _TOKEN.fullmatch(text.strip())
        if match is None:
            raise BadToken(
                f"{text!r} is no replay token. One looks like naive-ttl:freeze@processor.post-v1-charges.1.request "
                "or fencing:slow-charge@request-wire, and may end in :run=3:seed=7"
            )
        seed = match["seed"]
        return cls(
            match["subject"],
            match["fault"],
            match["place"],
            int(match["run"] or 1),
            None if seed is None else int(seed),
        )
