"""The holes declared in scenarios/test_every_boundary.py are those the model derives, at every boundary, both ways.

The scenario is imported by name, here alone: the model knows nothing of it. Its boundaries are messages as they cross
the wire, the model's are steps of the job: LABELS says which messages each step is made of.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import pytest

from .programs import VARIANTS
from .queue import DOUBLE_CHARGE, EXACTLY_ONE
from .tables import EVERY, boundaries, sweep

HANDSHAKE = (
    "redis.hello.1 redis.client-maint-notifications.1 redis.client-setinfo.1 redis.client-setinfo.2 redis.select.1"
)
"""What redis-py says on a new connection."""
LOCKED = {
    "redis.setup.1": HANDSHAKE,
    "redis.acquire.1": "redis.set.1",
    "redis.paid-read.1": "redis.get.1",
    "processor.charge.1": "processor.post-v1-charges.1",
    "redis.record.1": "redis.set.2",
    "redis.release.1": "redis.eval-fcd5.1",
}
RENEWED = {f"redis.renew.{n}": f"redis.eval-0a4b.{n}" for n in (1, 2, 3)}
TOKEN = {"redis.acquire.1": "redis.eval-059d.1", "redis.record.1": "redis.set.1"}
"""A script takes the lock and draws a token: so the record is the first SET."""
FENCED = LOCKED | TOKEN
READ = "redis.paid-read.1"

LABELS: Mapping[str, Mapping[str, str]] = {
    "naive-ttl": LOCKED,
    "long-ttl": LOCKED,
    "watchdog": LOCKED | RENEWED,
    "fencing": FENCED,
    "watchdog-fencing": FENCED | RENEWED,
    "fenced-read": {step: label for step, label in FENCED.items() if step != READ}
    | RENEWED
    | {"processor.paid-read.1": "processor.get-v1-charges.1"},
    "idempotency-key": LOCKED,
    "reserve-confirm": {
        "redis.setup.1": HANDSHAKE,
        "postgres.setup.1": "postgres.startup.1 postgres.startup.2",
        "redis.acquire.1": "redis.set.1",
        "postgres.paid-read.1": "postgres.select.1",
        "postgres.reserve.1": "postgres.insert.1",
        "redis.release.1": "redis.eval-fcd5.1",
        "processor.charge.1": "processor.post-v1-charges.1",
        "postgres.record.1": "postgres.update.1",
    },
    "reserve-confirm-naive": LOCKED | {"redis.reserve.1": "redis.set.2", "redis.record.1": "redis.set.3"},
    "pg-advisory": {
        "postgres.setup.1": "postgres.startup.1",
        "postgres.setup.2": "postgres.startup.2",
        "postgres.acquire.1": "postgres.select.1",
        "postgres.paid-read.1": "postgres.select.2",
        "processor.charge.1": "processor.post-v1-charges.1",
        "postgres.record.1": "postgres.insert.1",
        "postgres.release.1": "postgres.select.3",
    },
    "pg-advisory-xact": {
        "postgres.setup.1": "postgres.startup.1",
        "postgres.begin.1": "postgres.begin.1",
        "postgres.acquire.1": "postgres.select.1",
        "postgres.paid-read.1": "postgres.select.2",
        "processor.charge.1": "processor.post-v1-charges.1",
        "postgres.record.1": "postgres.insert.1",
        "postgres.release.1": "postgres.commit.1",
    },
}
"""The goodbyes to PostgreSQL (terminate) are no steps of the model's: whoever says them is through."""

Holes = Mapping[tuple[str, str], str]
"""(fault, boundary) -> verdict."""


def declared(variant: str) -> Holes:
    holes = importlib.import_module("scenarios.test_every_boundary").HOLES.get(variant, {})
    return {where: getattr(hole, "verdict", DOUBLE_CHARGE) for where, hole in holes.items()}


def derived(variant: str) -> Holes:
    return {
        (fault, f"{label}.{side}"): verdict
        for (step, side, fault), verdict in sweep(variant).items()
        if verdict != EXACTLY_ONE
        for label in LABELS[variant][step].split()
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_step_of_the_model_has_its_messages(variant: str) -> None:
    steps = {f"{link}.{role}.{n}" for link, role, n, _ in boundaries(variant)}
    assert steps == LABELS[variant].keys()
    labels = [label for step in LABELS[variant].values() for label in step.split()]
    assert len(labels) == len(set(labels)), "one message stands for two steps"


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_sweep_declares_the_holes_that_the_model_derives_and_no_others(variant: str) -> None:
    assert declared(variant) == derived(variant)


def test_the_sweep_declares_holes_of_the_variants_alone_and_of_its_own_faults() -> None:
    holes = importlib.import_module("scenarios.test_every_boundary").HOLES
    assert holes.keys() <= VARIANTS.keys()
    assert {fault for of_one in holes.values() for fault, _ in of_one} <= EVERY.keys()
