"""action.yml: its scripts run as GitHub runs them, on files and variables like GitHub's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import sample_runs
from sample_runs import experiment, run, subject

from harness import report

CLONE = Path(__file__).parents[2]
ACTION = (CLONE / "action.yml").read_text()
STEPS = {block.partition("\n")[0]: block for block in re.split(r"^    - name: ", ACTION, flags=re.MULTILINE)[1:]}
RUN, SUMMARY = "Run the scenarios", "Step summary and annotations"


def script(step: str) -> str:
    found = re.search(r"^      run: \|\n((?:        .*\n|\n)+)", STEPS[step], re.MULTILINE)
    assert found is not None, step
    return textwrap.dedent(found[1])


def carry_out(step: str, place: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """bash as GitHub calls it for `shell: bash`."""
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script(step)]
    base = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "RUNNER_TEMP": str(place), "PYTHONPATH": str(CLONE)}
    github = {"GITHUB_OUTPUT": str(place / "output"), "GITHUB_STEP_SUMMARY": str(place / "summary")}
    return subprocess.run(
        command, env={**base, **github, **env}, cwd=place, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory whose python notes what it is called with, and ends with status 1 as a failed run does."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text("#!/bin/bash\nprintf '%s\\0' \"$@\" > called\nexit 1\n")
    python.chmod(0o755)
    return tmp_path


def called(place: Path) -> list[str]:
    return (place / "called").read_text().split("\0")[:-1]


INPUTS = {"SUBJECT": "", "WORKER": "", "TTL": "", "STACK": "local", "PYTEST_ARGS": ""}


def test_an_action_needs_five_lines_and_its_inputs_are_not_text_of_any_script() -> None:
    assert not re.search(r"\$\{\{", "".join(map(script, STEPS)))
    inputs = ACTION[ACTION.index("\ninputs:") : ACTION.index("\noutputs:")]
    assert all("default:" in block for block in re.split(r"\n  (?=\w)", inputs)[1:]), "none has to be given"


def test_what_is_given_reaches_pytest_as_typed_and_its_status_is_the_steps(place: Path) -> None:
    worker = "node 'my worker.js' $(touch pwned) `touch pwned`"
    extra = "-k \"slow_charge and before-commit\" -x --harness-seed=7 '$(touch pwned)'\n  -q"
    done = carry_out(RUN, place, **INPUTS | {"WORKER": worker, "TTL": "500", "PYTEST_ARGS": extra})
    assert done.returncode == 1, done.stderr
    folder = f"{place}/lockproof-report"
    assert called(place) == [
        *("-m", "pytest", "--pyargs", "scenarios", "--harness-stack", "local", "--harness-report", folder),
        *("--junitxml", f"{folder}/junit.xml", "--harness-worker", worker, "--harness-ttl", "500"),
        *("-k", "slow_charge and before-commit", "-x", "--harness-seed=7", "$(touch pwned)", "-q"),
    ]
    assert not (place / "pwned").exists()
    assert (place / "output").read_text() == f"report={folder}\n"


def test_a_subject_alone_is_enough(place: Path) -> None:
    carry_out(RUN, place, **INPUTS | {"SUBJECT": "myapp.billing:charge_invoice"})
    assert called(place)[-2:] == ["--harness-subject", "myapp.billing:charge_invoice"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "::error title=lockproof::give subject or worker"),
        ({"SUBJECT": "a:b", "PYTEST_ARGS": '-k "slow'}, "::error title=lockproof::pytest-args: a quote is not closed"),
    ],
)
def test_what_would_run_something_else_than_was_asked_for_runs_nothing(
    given: dict[str, str], says: str, place: Path
) -> None:
    done = carry_out(RUN, place, **INPUTS | given)
    assert done.returncode == 2
    assert says in done.stdout + done.stderr
    assert not (place / "called").exists()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_the_last_step_writes_summary_and_annotations_from_a_subdirectory_and_leaves_the_verdict_to_the_run(
    place: Path,
) -> None:
    python = place / "bin" / "python"
    python.unlink()
    python.symlink_to(sys.executable)
    source = f"{place}/services/billing/jobs.py:41"
    broken = run([experiment("x", verdict="double-charge", events=[])], [subject("x", source=source)])
    report.write_results(broken, place / "results.json")
    done = carry_out(SUMMARY, place, REPORT=str(place), GITHUB_WORKSPACE=str(place))
    assert done.returncode == 0, done.stderr
    assert "::error file=services/billing/jobs.py,line=41,title=DOUBLE CHARGE" in done.stdout
    assert "DOUBLE CHARGE" in (place / "summary").read_text()
    assert (place / "index.html").is_file()


def test_a_run_without_results_is_an_error_of_its_own_and_a_green_one_has_no_annotation(place: Path) -> None:
    done = carry_out(SUMMARY, place, REPORT=str(place))
    assert "::error title=lockproof::the run ended before it wrote results.json" in done.stdout
    assert report.error_annotations(sample_runs.passing()) == []
