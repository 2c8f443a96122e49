"""Every broken subject is caught where it must be, and sound ones are not accused. The long form is make soak.

Each runs as a user would run it, in a pytest of its own, several side by side. A broken subject is restricted with -k
to the scenario that must catch it, or one of a sweep's experiments is replayed. With it runs the built-in variant that
differs from it by the bug alone, and passes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.broken.expected import BANK as BROKEN
from tests.broken.expected import BASELINE, SWEEP, Broken
from tests.broken.running import Run, run_scenarios
from tests.sound.expected import BANK as SOUND
from tests.sound.expected import Sound

SIDE_BY_SIDE = max(2, min(6, 2 * (os.cpu_count() or 1)))
TIMEOUT_S = 300.0
SMALL_SELECTION = (
    "(slow_charge and (after-commit or request-wire-of-a)) or (freeze and charge-reply) or "
    "(third_worker and charge-request) or (redis_node and charge-request)"
)

Runs = dict[str, Future[Run]]


def _by_name(entry: Broken | Sound) -> str:
    return entry.name


def _arguments(entry: Broken | Sound) -> tuple[str, ...]:
    if isinstance(entry, Sound):
        return (*entry.subject_args, "-k", SMALL_SELECTION)
    return entry.replay if entry.scenario == SWEEP else entry.arguments


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, tuple[str, ...]], Future[Run]]]:
    """Starts a run, once for each name, when there is room."""
    runs: Runs = {}
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:

        def begin(name: str, arguments: tuple[str, ...]) -> Future[Run]:
            if name not in runs:
                report: Path = tmp_path_factory.mktemp("report")
                runs[name] = pool.submit(run_scenarios, arguments, report, timeout_s=TIMEOUT_S)
            return runs[name]

        yield begin
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def wanted(request: pytest.FixtureRequest, start: Callable[[str, tuple[str, ...]], Future[Run]]) -> Run:
    """The run of this test's subject; the runs of the tests that come after it are started with it."""
    for item in request.session.items:
        callspec = getattr(item, "callspec", None)
        if item.path == request.path and callspec is not None:
            entry = callspec.params["entry"]
            start(entry.name, _arguments(entry))
    name: str = request.node.callspec.params["entry"].name
    return start(name, ()).result()


@pytest.mark.parametrize("entry", [entry for entry in BROKEN if entry.scenario != SWEEP], ids=_by_name)
def test_a_broken_subject_is_caught_where_it_must_be(entry: Broken, wanted: Run) -> None:
    own = wanted.of_own_subject()
    if entry.scenario == BASELINE:
        # Without any protection B charges while A does; should B be slow to start, the slow charge shows it.
        assert entry.verdict in [e["verdict"] for e in own], wanted.tail()
        assert wanted.status == pytest.ExitCode.TESTS_FAILED, wanted.tail()
        return
    caught = [e for e in wanted.experiments(*entry.caught_by) if e in own]
    assert [e["verdict"] for e in caught] == [entry.verdict], wanted.tail()
    assert wanted.status == pytest.ExitCode.TESTS_FAILED, wanted.tail()
    assert caught[0]["landed"], caught[0]["reason"]
    assert caught[0]["contended"], caught[0]["reason"]
    assert f"--harness-replay {caught[0]['subject']}:{caught[0]['fault']}@{caught[0]['place']}" in wanted.output


@pytest.mark.parametrize("entry", [entry for entry in BROKEN if entry.scenario == SWEEP], ids=_by_name)
def test_a_broken_subject_is_caught_by_the_experiment_of_a_sweep_that_must(entry: Broken, wanted: Run) -> None:
    """As `pytest scenarios/ --harness-replay` makes it; make soak has the whole sweeps."""
    assert wanted.status == pytest.ExitCode.TESTS_FAILED, wanted.tail()
    assert {"double-charge": "charged twice", "no-charge": "never charged"}[entry.verdict] in wanted.output
    assert "seen to have landed" in wanted.output


@pytest.mark.parametrize("entry", [entry for entry in BROKEN if entry.runs_beside_twin], ids=_by_name)
def test_what_is_caught_is_the_bug_and_not_the_lock_around_it(entry: Broken, wanted: Run) -> None:
    """The built-in variant with the same lock, and without the bug, comes out clean at the very same place."""
    twins = [e for e in wanted.experiments(*entry.caught_by) if e["subject"] == entry.twin]
    assert [(e["verdict"], e["expected"]) for e in twins] == [("exactly-one", "exactly-one")], wanted.tail()


@pytest.mark.parametrize("entry", [entry for entry in BROKEN if entry.counterpart], ids=_by_name)
def test_what_is_caught_is_the_bug_where_no_variant_has_the_same_lock(
    entry: Broken, start: Callable[[str, tuple[str, ...]], Future[Run]]
) -> None:
    run = start(f"{entry.name}'s counterpart", entry.counterpart_arguments).result()
    own = [e for e in run.experiments(*entry.caught_by) if e in run.of_own_subject()]
    assert [(e["verdict"], e["expected"]) for e in own] == [("exactly-one", "exactly-one")], run.tail()
    assert run.status == pytest.ExitCode.OK, run.tail()


@pytest.mark.parametrize("entry", SOUND, ids=_by_name)
def test_a_sound_subject_is_not_accused(entry: Sound, wanted: Run) -> None:
    verdicts = {e["id"]: (e["verdict"], e["reason"]) for e in wanted.of_own_subject()}
    assert {kind for kind, _ in verdicts.values()} <= {"exactly-one", "not-applicable"}, verdicts
    assert any(kind == "exactly-one" for kind, _ in verdicts.values()), verdicts
    assert wanted.status == pytest.ExitCode.OK, wanted.tail()
