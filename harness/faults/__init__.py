"""One thing that goes wrong, one file each. A new fault is a file here with a @register-ed class; nothing else to do.

A fault lives for one experiment. arm() prepares it before worker A starts; it strikes when a message of A's reaches
its place; lift() ends it; witness() shows, from what somebody else than the fault saw, that it landed.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import ClassVar, TypeVar

from harness.bench import Bench
from harness.profile import POINTS, Profile


class Fault:
    """What every fault has. name and title (one line for a reader) are of the class, the bench is the experiment's."""

    name: ClassVar[str]
    title: ClassVar[str]
    own_redis: ClassVar[tuple[str, ...] | None] = None
    """Options of a Redis server of the experiment's own, for a fault that breaks servers; None to share the run's."""
    replicas: ClassVar[int] = 0
    """How many more Redis servers of its own it starts."""
    recovers_from: ClassVar[str | None] = None
    """What happens to A that leaves its customer locked: an event of A's, from which recovery_s is measured."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        """Why this fault at this place does not concern a subject; None where it does."""
        return None

    refuses: ClassVar[bool] = False
    """Whether it shows in a connection that Toxiproxy refuses or resets."""
    stops_redis: ClassVar[bool] = False
    """Whether it stops a Redis server's process, which must be one of this machine then."""
    second_postgres: ClassVar[bool] = False
    """Whether it puts a PostgreSQL of the harness's beside the stack's."""

    @classmethod
    def proxies(cls, place: str) -> int:
        """How many proxies of Toxiproxy an experiment makes at a place, at most: a stack may have only so many."""
        return 0

    async def arm(self) -> None:
        """Prepares the fault: before A starts."""

    async def lift(self) -> None:
        """Ends the fault: B is through, or its attempts are over."""
        self.bench.history.add("queue", "fault", "fault-lifted")

    async def afterwards(self) -> None:
        """After the last clean delivery: delivers what else is to be delivered (the customer's next invoice, say)."""

    async def witness(self) -> None:
        """After everything has ended: calls bench.landed or bench.not_landed."""
        raise NotImplementedError

    async def clean_up(self) -> None:
        """Gives back what arm() took, whatever has happened."""


HELD_LEASES = 1.2
"""How long the charge is held in the run from which the renewals are learned: a lease and a bit."""

F = TypeVar("F", bound=type[Fault])
FAULTS: dict[str, type[Fault]] = {}


def register(fault: F) -> F:
    """Makes a fault known by its name."""
    FAULTS[fault.name] = fault
    return fault


def boundary_of(profile: Profile, place: str) -> str | None:
    """The boundary that a place stands for: itself, or charge-request and the like as the baseline learned them."""
    point, _, side = place.rpartition("-")
    if point in POINTS and side in ("request", "reply"):
        message = profile.points.get(point)
        return None if message is None else f"{message}.{side}"
    return place if place.count(".") == 3 else None


def load_all() -> None:
    """Imports every fault, so that FAULTS is complete."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
