"""Every command of examples/README.md does what the table above it says, as it is written there."""

from __future__ import annotations

import re
import shlex
import shutil

import pytest

from core.runs import CLONE, Ran, side_by_side

README = (CLONE / "examples" / "README.md").read_text()
COMES_OUT = {
    "billing": "double-charge",
    "mended": "exactly-one",
    "worker.mjs": "exactly-one",
    "worker.sh": "double-charge",
}


def commands() -> list[list[str]]:
    """What README says to type, without the word pytest."""
    return [shlex.split(line)[1:] for line in re.findall(r"^    (pytest scenarios/ .*)$", README, re.MULTILINE)]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> list[Ran]:
    for program in ("node", "bash"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    return side_by_side(commands(), report=tmp_path_factory.mktemp("examples"))


def one_of(ran: list[Ran], worker: str, *, doctor: bool = False) -> Ran:
    (found,) = [r for r in ran if worker in " ".join(r.args) and doctor == ("--harness-doctor" in r.args)]
    return found


@pytest.mark.parametrize("worker", COMES_OUT)
def test_an_example_comes_out_as_its_readme_says(ran: list[Ran], worker: str) -> None:
    run = one_of(ran, worker)
    if run.stalled:
        pytest.skip("the machine had no time for this example in five tries")
    assert run.results is not None, run.out
    own = next(s["name"] for s in run.results["subjects"] if s["kind"] != "variant")
    assert run.experiment(f"slow-charge/{own}/")["verdict"] == COMES_OUT[worker], run.out
    assert run.experiment(f"baseline/{own}/")["verdict"] == "exactly-one", run.out
    assert run.experiment("slow-charge/naive-ttl/")["verdict"] == "double-charge", "the control shows its hole"
    assert run.status == (0 if COMES_OUT[worker] == "exactly-one" else 1), run.out


def test_a_broken_example_is_told_with_its_schedule_its_money_and_its_replay(ran: list[Ran]) -> None:
    run = one_of(ran, "billing")
    if run.stalled:
        pytest.skip("the machine had no time for this example in five tries")
    assert "A's lease has EXPIRED" in run.out
    assert re.search(r"The customer was charged twice for invoice \S+ \(42\.00 EUR\)", run.out)
    assert "--harness-replay examples-redis-lock-billing-charge-invoice:slow-charge@before-commit" in run.out
    assert "LockNotOwnedError" in run.out, "the last words of a worker that failed"


def test_the_doctor_tells_what_it_learned_of_an_example(ran: list[Ran]) -> None:
    run = one_of(ran, "billing", doctor=True)
    if run.stalled:
        pytest.skip("the machine had no time for this example in five tries")
    assert run.status == 0, run.out
    assert re.search(r"lock +lock:\{customer\}", run.out)
    assert re.search(r"lease +asked for 1000 ms, observed: (9[5-9]\d|1000) ms", run.out)
    assert "charge: processor.post-v1-charges.1" in run.out
    assert f"{CLONE}/examples/redis_lock/billing.py:" in run.out
    assert "fit to be tried" in run.out


def test_every_example_is_in_the_readme() -> None:
    workers = [p for p in (CLONE / "examples").rglob("*") if p.suffix in (".py", ".mjs", ".sh")]
    assert len(workers) == len(COMES_OUT)
    for path in workers:
        assert f"]({path.relative_to(CLONE / 'examples')})" in README
