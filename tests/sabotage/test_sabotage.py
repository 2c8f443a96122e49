"""The harness with one thing broken is never green: the verdict is inconclusive, or the error names the cause.

Each experiment here would be exactly-one with nothing broken, which one test shows. The death of a pytest-xdist worker
is in test_xdist_worker.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from core.runs import run

from harness.experiment import Outcome
from harness.stack import StackError
from harness.stack.local import LocalStack
from harness.stack.processor import ProcessorControl
from harness.subject import Subject
from sabotage.broken_bench import BROKEN
from sabotage.broken_stack import STACK, when_struck
from sabotage.workshop import MOST_TRIES, STALLED, Sabotage, attempt, engine, no_postgres

FAMILY = Subject("family-charge", "callable", "family:charge_invoice")
ESCAPE = Subject("escape-charge", "callable", "family:escape")


async def break_a_stack(name: str) -> Outcome:
    made = await engine()
    try:
        return await attempt(made, Sabotage("slow-charge", "before-commit", when_struck(STACK[name][0])))
    finally:
        await made.stop()


NOTHING = {
    "nothing is broken, slow charge": Sabotage("slow-charge", "before-commit"),
    "nothing is broken, slow wire": Sabotage("slow-charge", "request-wire"),
    "nothing is broken, freeze": Sabotage("freeze", "charge-request"),
    "nothing is broken, hold": Sabotage("hold", "charge-request"),
    "nothing is broken, a family": Sabotage("freeze", "charge-request", subject="family-charge"),
}


async def all_of_it() -> dict[str, Outcome]:
    made = await engine(FAMILY, ESCAPE, cwd=str(Path(__file__).parent))
    try:
        wanted = {name: sabotage for name, (sabotage, _) in BROKEN.items()} | NOTHING
        # toxiproxy-python knows one server a process: who lies about Toxiproxy is tried alone, and a stack with a
        # Toxiproxy of its own is started only when nobody asks the first one any more
        first = {name: await attempt(made, wanted.pop(name)) for name in list(wanted) if name.startswith("Toxiproxy")}
        work = [attempt(made, sabotage) for sabotage in wanted.values()]
        outcomes = await asyncio.gather(*work)
        outcomes += await asyncio.gather(*map(break_a_stack, STACK))
        return first | dict(zip([*wanted, *STACK], outcomes, strict=True))
    finally:
        await made.stop()


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStack, "_start_postgres", no_postgres)
        return asyncio.run(all_of_it())


def skip_if_stalled(outcome: Outcome) -> None:
    if STALLED in outcome.verdict.reason:
        pytest.skip(f"the machine had no time for this in {MOST_TRIES} tries")


@pytest.mark.parametrize("name", NOTHING)
def test_with_nothing_broken_the_same_experiments_are_exactly_one(name: str, outcomes: dict[str, Outcome]) -> None:
    skip_if_stalled(outcomes[name])
    assert (outcomes[name].verdict.kind, outcomes[name].verdict.landed) == ("exactly-one", True), outcomes[name].verdict


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_never_green_and_is_named(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[name]
    skip_if_stalled(outcome)
    assert outcome.verdict.kind == "inconclusive", outcome.verdict
    assert BROKEN[name][1] in outcome.verdict.reason


@pytest.mark.parametrize("name", STACK)
def test_a_server_that_breaks_is_never_green_and_is_named(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[name]
    assert outcome.verdict.kind == "inconclusive", outcome.verdict
    assert STACK[name][1] in outcome.verdict.reason


@pytest.mark.parametrize("off_s", [-2, 2])
def test_a_run_does_not_start_with_a_processor_of_another_clock(off_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ProcessorControl.health

    async def health(self: ProcessorControl) -> dict[str, Any]:
        told = await real(self)
        return {**told, "monotonic_ns": told["monotonic_ns"] + off_s * 1_000_000_000}

    monkeypatch.setattr(ProcessorControl, "health", health)
    monkeypatch.setattr(LocalStack, "_start_postgres", no_postgres)
    with pytest.raises(StackError, match=r"clock is \d+ ms off"):
        asyncio.run(engine())


def test_results_that_cannot_be_written_are_an_error_not_a_green_run(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("a file where the directory should be")
    wanted = ("scenarios/", "--harness-variant", "naive-ttl", "-k", "slow_charge and before-commit")
    ran = run(*wanted, report=tmp_path / "reports")
    assert ran.status == pytest.ExitCode.INTERNAL_ERROR
    assert "could not be written" in ran.out
    assert f"{tmp_path}/reports" in ran.out
    assert "Green" not in ran.out, "who reads only the verdict's line takes it for one"
