"""Small real runs: what they write, what they print, and what they do not run."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from core.runs import Ran, run, side_by_side
from harness.report import load

ONE = ("scenarios/", "--harness-variant", "naive-ttl", "-k", "slow_charge and before-commit")
TWO = (
    "scenarios/",
    "--harness-variant",
    "naive-ttl",
    "-k",
    "slow_charge and (before-commit or after-commit)",
    "-n",
    "2",
)
REPLAY = ("scenarios/", "--harness-replay", "naive-ttl:slow-charge@before-commit:run=2:seed=7")
NOWHERE = ("scenarios/", "--harness-replay", "naive-ttl:freeze@redis.mget.1.reply")
NOTHING = ("scenarios/", "--harness-worker", "true", "--harness-ttl", "300", "-k", "slow_charge and before-commit")
BESIDE = (
    "scenarios/test_freeze.py", "--collect-only", "-q", "--harness-runs", "2",
    "--harness-subject", "tests.sound.no_lock_but_a_key:run", "-k", "record-re",
)  # fmt: skip
UNPREPARED = (
    "scenarios/", "--harness-subject", "tests.sound.no_lock_but_a_key:run", "--harness-setup", "false",
    "-k", "slow_charge and before-commit",
)  # fmt: skip
WANTED = {
    "one": ONE,
    "xdist": TWO,
    "replay": REPLAY,
    "nowhere": NOWHERE,
    "nothing": NOTHING,
    "beside": BESIDE,
    "unprepared": UNPREPARED,
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def ran(directory: Path) -> dict[str, Ran]:
    commands = [(*args, "--junitxml", str(directory / f"{name}.xml")) for name, args in WANTED.items()]
    return dict(zip(WANTED, side_by_side(commands, report=directory), strict=True))


def not_stalled(ran: Ran) -> Ran:
    if ran.stalled:
        pytest.skip("the machine had no time for this run in five tries")
    return ran


def test_results_are_as_the_contract_with_other_programs_has_them(ran: dict[str, Ran], directory: Path) -> None:
    results = not_stalled(ran["one"]).results
    assert results is not None, ran["one"].out
    assert {"schema", "partial", "seed", "started", "wall_s", "ttl_ms", "host", "commit", "stack", "subjects",
            "experiments"} <= results.keys()  # fmt: skip
    assert (results["schema"], results["partial"], results["ttl_ms"]) == (2, False, 1000)
    assert results["stack"]["kind"] == "local"
    assert results["stack"]["redis"].split()[0] in ("valkey", "redis")
    subject = next(s for s in results["subjects"] if s["name"] == "naive-ttl")
    assert (subject["kind"], subject["lock"]) == ("variant", "lock:{customer}")
    assert re.search(r"/harness/variants/naive_ttl\.py:\d+$", subject["source"])
    experiment = ran["one"].experiment("slow-charge/naive-ttl/before-commit")
    assert (experiment["verdict"], experiment["expected"], experiment["charges"]) == ("double-charge",) * 2 + (2,)
    assert experiment["hole"].startswith("the lease runs out while A's charge is under way")
    assert (experiment["landed"], experiment["contended"]) == (True, True)
    assert experiment["replay"] == "pytest scenarios/ --harness-replay naive-ttl:slow-charge@before-commit"
    assert next((w["name"], w["exit"]) for w in experiment["workers"]) == ("A", 0)
    assert {"t_ms", "witness", "who", "what"} <= experiment["events"][0].keys()
    times = [event["t_ms"] for event in experiment["events"]]
    assert times == sorted(times)


def test_the_results_can_be_read_again_and_a_page_is_beside_them(ran: dict[str, Ran], directory: Path) -> None:
    not_stalled(ran["one"])
    (path,) = [p for p in directory.rglob("results.json") if f"{p}" in ran["one"].out]
    assert len(load(path)["experiments"]) == 2
    assert (path.parent / "index.html").is_file()


def test_what_is_deselected_is_not_run(ran: dict[str, Ran]) -> None:
    results = not_stalled(ran["one"]).results
    assert results is not None
    assert {e["id"].split("/")[0] for e in results["experiments"]} == {"slow-charge", "baseline"}
    assert {e["subject"] for e in results["experiments"]} == {"naive-ttl"}


def test_a_reproduced_hole_is_green_and_told_as_reproduced(ran: dict[str, Ran]) -> None:
    run = not_stalled(ran["one"])
    assert run.status == pytest.ExitCode.OK, run.out
    assert "double charge (reproduced)" in run.out
    assert "1 xfailed" in run.out
    assert "Green: " in run.out


def test_under_xdist_there_is_one_engine_and_one_result_of_it(ran: dict[str, Ran]) -> None:
    run = not_stalled(ran["xdist"])
    assert run.status == pytest.ExitCode.OK, run.out
    assert run.results is not None
    ids = sorted(e["id"] for e in run.results["experiments"])
    assert [i for i in ids if i.startswith("slow-charge")] == [
        "slow-charge/naive-ttl/after-commit",
        "slow-charge/naive-ttl/before-commit",
    ]
    assert len([i for i in ids if i.startswith("baseline/naive-ttl")]) == 1, "two engines would have two baselines"
    assert run.out.count("exactly one charge?") == 1
    assert "2 xfailed" in run.out


@pytest.mark.parametrize("name", ["one", "xdist"])
def test_junit_properties_tell_the_experiment(name: str, ran: dict[str, Ran], directory: Path) -> None:
    not_stalled(ran[name])
    cases = list(ElementTree.parse(directory / f"{name}.xml").iter("testcase"))
    assert cases
    for case in cases:
        told = {p.get("name"): p.get("value") for p in case.iter("property")}
        assert told["subject"] == "naive-ttl"
        assert (told["verdict"], told["charges"], told["landed"], told["contended"]) == (
            "double-charge",
            "2",
            "true",
            "true",
        )
        assert str(told["replay"]).startswith("pytest scenarios/ --harness-replay naive-ttl:slow-charge@")
        assert "charged twice" in str(told["sentence"])


def test_a_replay_runs_one_experiment_and_tells_it_whole(ran: dict[str, Ran]) -> None:
    run = not_stalled(ran["replay"])
    assert run.status == pytest.ExitCode.TESTS_FAILED, run.out
    assert "A's lease has EXPIRED" in run.out
    assert "The customer was charged twice" in run.out
    assert "--harness-replay naive-ttl:slow-charge@before-commit:run=2:seed=7" in run.out
    assert "test session starts" not in run.out, "no tests are collected for it"


def test_a_replay_at_a_boundary_that_there_is_not_names_those_that_there_are(ran: dict[str, Ran]) -> None:
    run = not_stalled(ran["nowhere"])
    assert run.status == pytest.ExitCode.USAGE_ERROR, run.out
    assert "naive-ttl has no boundary redis.mget.1.reply" in run.out
    assert "processor.post-v1-charges.1.request" in run.out


def test_a_setup_that_fails_is_to_blame_not_the_subject(ran: dict[str, Ran]) -> None:
    run = ran["unprepared"]
    assert run.status == pytest.ExitCode.TESTS_FAILED, run.out
    assert "Not green: " in run.out
    assert "--harness-setup false ended with status 1" in run.out


def test_the_control_beside_ones_own_lock_is_not_repeated(ran: dict[str, Ran]) -> None:
    assert re.findall(r"\[(.*)\]", ran["beside"].out) == [
        "naive-ttl-record-request",
        "naive-ttl-record-reply",
        "tests-sound-no-lock-but-a-key-run-record-request",
        "tests-sound-no-lock-but-a-key-run-record-request-run2",
        "tests-sound-no-lock-but-a-key-run-record-reply",
        "tests-sound-no-lock-but-a-key-run-record-reply-run2",
    ]


def test_a_run_that_shows_nothing_of_a_subject_is_not_green(ran: dict[str, Ran]) -> None:
    run = ran["nothing"]
    assert run.status == pytest.ExitCode.TESTS_FAILED, run.out
    assert "nothing conclusive about true" in run.out or "nothing conclusive about naive-ttl and true" in run.out
    assert run.results is not None
    assert run.experiment("slow-charge/true/")["verdict"] == "inconclusive"
    assert "the baseline saw no request to charge" in run.out


def test_what_is_refused_is_told_under_xdist_too(tmp_path: Path) -> None:
    """Its workers find it out, and whatever they raise as they collect is a crash of pytest-xdist's own."""
    ran = run(*TWO, report=tmp_path, env={"HARNESS_SUBJECT": "billing:charge"})
    assert ran.status != 0
    assert "HARNESS_SUBJECT is set, and nothing reads it" in ran.out
    assert "INTERNALERROR" not in ran.out
    assert "Green:" not in ran.out
