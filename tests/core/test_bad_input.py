"""What is asked wrongly is refused before any server starts, with the option, what is wrong with it and the remedy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from harness.launcher import Keeper
from harness.processes import HarnessError

pytest_plugins = ["pytester"]

SCENARIO = """
from harness import experiments

@experiments("slow-charge", places=("before-commit",))
def test_it(experiment):
    experiment.charged_exactly_once()
"""
NOT_STARTED = "the keeper would have been started now"


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Starting anything is noticed: all servers and workers are children of the keeper."""

    async def launch() -> Keeper:
        raise HarnessError(NOT_STARTED)

    monkeypatch.setattr(Keeper, "launch", launch)


def refused(pytester: pytest.Pytester, *args: str, ini: str = "") -> str:
    """Runs pytest in this process with the one scenario; the message it refuses with."""
    pytester.makepyfile(test_scenario=SCENARIO)
    pytester.makeini("[pytest]\nfilterwarnings =\n    ignore\n" + ini)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist", *args)
    told = "\n".join(result.errlines + result.outlines)
    assert result.ret == pytest.ExitCode.USAGE_ERROR, told
    return told


WRONG: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "an unknown variant": (("--harness-variant", "redlock"), ("--harness-variant redlock", "naive-ttl, long-ttl")),
    "a subject that is no reference": (
        ("--harness-subject", "billing"),
        ("--harness-subject billing", "MODULE:CALLABLE"),
    ),
    "a subject of no module": (
        ("--harness-subject", "nowhere.billing:charge"),
        ("--harness-subject nowhere.billing:charge", "no module nowhere", "Start pytest where it can be imported"),
    ),
    "a file for a module": (
        ("--harness-subject", "billing.py:charge"),
        ("--harness-subject billing.py:charge", "that is a file", "billing:charge"),
    ),
    "a command of no program": (
        ("--harness-worker", "no-such-program worker.js"),
        ("--harness-worker no-such-program worker.js", "no program no-such-program on PATH"),
    ),
    "an empty command": (("--harness-worker", " "), ("--harness-worker", "empty")),
    "a command with an open quote": (("--harness-worker", "node 'x"), ("--harness-worker", "quot")),
    "two subjects": (
        ("--harness-subject", "os:getcwd", "--harness-worker", "true"),
        ("--harness-subject and --harness-worker", "give one"),
    ),
    "a Toxiproxy that is not there": (
        ("--harness-toxiproxy", "no-such-program"),
        ("--harness-toxiproxy no-such-program", "no such program", "stand-in"),
    ),
    "a Toxiproxy for containers": (
        ("--harness-toxiproxy", "stand-in", "--harness-stack", "compose"),
        ("--harness-toxiproxy stand-in", "TOXIPROXY_IMAGE"),
    ),
    "a lease of zero": (("--harness-ttl", "0"), ("--harness-ttl 0", "200")),
    "a lease of less than nothing": (("--harness-ttl", "-5"), ("--harness-ttl -5", "200")),
    "a lease that this machine cannot time": (("--harness-ttl", "50"), ("--harness-ttl 50", "timing")),
    "a lease that is no number": (("--harness-ttl", "1s"), ("--harness-ttl 1s", "not a number")),
    "a delay shorter than the lease": (("--harness-delay", "0.5"), ("--harness-delay 0.5", "faster than the lease")),
    "a delay that is not a number": (("--harness-delay", "nan"), ("--harness-delay nan",)),
    "no run": (("--harness-runs", "0"), ("--harness-runs 0", "from 1 to")),
    "too many runs": (("--harness-runs", "1000000"), ("--harness-runs 1000000", "from 1 to")),
    "a seed below zero": (("--harness-seed", "-1"), ("--harness-seed -1",)),
    "no Redis": (
        ("--harness-subject", "os:getcwd", "--harness-redis-nodes", "0"),
        ("--harness-redis-nodes 0", "from 1 to 9"),
    ),
    "several Redis nodes for nobody": (
        ("--harness-redis-nodes", "3"),
        ("--harness-redis-nodes 3", "the built-in variants have one Redis", "--harness-subject"),
    ),
    "a callable that is an unset variable": (("--harness-subject", ""), ("--harness-subject is empty", "variable")),
    "a command that is an unset variable": (("--harness-worker", ""), ("--harness-worker is empty",)),
    "a variant that is an unset variable": (("--harness-variant", ""), ("--harness-variant is empty",)),
    "a Toxiproxy that is an unset variable": (("--harness-toxiproxy", ""), ("--harness-toxiproxy is empty",)),
    "an unknown stack": (("--harness-stack", "cloud"), ("--harness-stack", "local", "compose")),
    "a replay token of no shape": (
        ("--harness-replay", "naive ttl at 3"),
        ("--harness-replay", "no replay token", "naive-ttl:freeze@processor.post-v1-charges.1.request"),
    ),
    "a replay of nobody": (("--harness-replay", "nobody:freeze@charge-request"), ("no subject nobody", "naive-ttl")),
    "a replay of no fault": (
        ("--harness-replay", "naive-ttl:earthquake@charge-request"),
        ("no fault earthquake", "freeze"),
    ),
    "a setup of no program": (("--harness-setup", "no-such-program up"), ("--harness-setup no-such-program up",)),
}


@pytest.mark.parametrize("case", WRONG)
def test_it_is_refused_with_its_name_and_the_remedy(case: str, pytester: pytest.Pytester) -> None:
    args, words = WRONG[case]
    told = refused(pytester, *args)
    for word in words:
        assert word in told
    assert NOT_STARTED not in told


def test_the_ini_is_checked_like_the_flags(pytester: pytest.Pytester) -> None:
    told = refused(pytester, ini="harness_ttl = 7\n")
    assert "--harness-ttl 7" in told
    assert NOT_STARTED not in told


@pytest.mark.parametrize(
    ("ini", "meant"),
    [
        ("harness_subjct = billing:charge", "harness_subject"),
        ("harness_ttl_ms = 300", "harness_ttl"),
        ("harness-ttl = 300", "harness_ttl"),
    ],
)
def test_an_ini_key_that_nothing_reads_is_refused(ini: str, meant: str, pytester: pytest.Pytester) -> None:
    """pytest would warn, and the built-in variants would be tried in place of the lock: green."""
    told = refused(pytester, ini=f"{ini}\n")
    assert f"{ini.partition(' ')[0]} in {pytester.path}" in told
    assert f"is {meant} meant?" in told
    assert NOT_STARTED not in told


def test_an_override_that_nothing_reads_is_refused(pytester: pytest.Pytester) -> None:
    assert "is harness_worker meant?" in refused(pytester, "-o", "harness_workr=sh")


def test_another_plugins_key_is_its_own_business(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addini('harness_of_horses', 'how many')\n")
    assert NOT_STARTED in refused(pytester, ini="harness_of_horses = 2\n")


def test_where_there_is_no_experiment_it_is_nobodys_business(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job's other tests, in a pull request from a fork, which is given no secrets."""
    monkeypatch.setenv("HARNESS_REDIS_URL", "")
    monkeypatch.setenv("HARNESS_SUBJECT", "billing:charge")
    pytester.makepyfile(test_other="def test_it(): pass")
    pytester.makeini("[pytest]\nharness_subjct = billing:charge\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist")
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("name", ["SUBJECT", "WORKER", "VARIANT", "SETUP"])
def test_a_variable_that_nothing_reads_is_refused(
    name: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"HARNESS_{name}", "billing:charge")
    told = refused(pytester)
    assert f"HARNESS_{name} is set, and nothing reads it: give --harness-{name.lower()}" in told
    assert "HARNESS_STACK, HARNESS_REDIS_URL" in told


@pytest.mark.parametrize("name", ["HARNESS_STACK", "HARNESS_REDIS_URL", "HARNESS_REDIS_NODES", "HARNESS_POSTGRES_URL"])
def test_a_secret_that_is_not_set_is_refused(
    name: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workflow gives an empty variable for it: the harness's own servers would be tried in place of the user's."""
    monkeypatch.setenv(name, "")
    assert f"{name} is set and empty" in refused(pytester)


@pytest.mark.parametrize(
    ("line", "word"),
    [("freeze at charge", "is not FAULT@PLACE = reason"), ("freeze@charge-request = it is known", "--harness-subject")],
)
def test_holes_that_are_none_are_refused(line: str, word: str, pytester: pytest.Pytester) -> None:
    assert word in refused(pytester, ini=f"harness_holes =\n    {line}\n")


def test_a_subject_that_is_found_but_is_not_callable_is_refused(pytester: pytest.Pytester) -> None:
    """What importing does is only known once it is imported, which the keeper's child does: see test_baseline.py."""
    pytester.makepyfile(billing="charge = 3")
    assert NOT_STARTED in refused(pytester, "--harness-subject", "billing:charge")


@pytest.mark.parametrize(
    ("args", "ini"),
    [(("--reruns", "2"), ""), (("--force-reruns", "1"), ""), ((), "reruns = 2\n"), ((), "addopts = --reruns=3\n")],
)
def test_reruns_of_failed_tests_are_refused(
    args: tuple[str, ...], ini: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_rerunfailures(pytester, monkeypatch)
    told = refused(pytester, "-p", "rerunfailures", *args, ini=ini)
    assert "pytest-rerunfailures" in told
    assert "double charge" in told
    assert NOT_STARTED not in told


def test_a_scenario_marked_flaky_is_refused(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_rerunfailures(pytester, monkeypatch)
    pytester.makepyfile(test_flaky="import pytest\npytestmark = pytest.mark.flaky(reruns=2)\n" + SCENARIO)
    assert "@pytest.mark.flaky" in refused(pytester, "-p", "rerunfailures", "-k", "test_flaky")


def test_reruns_of_other_tests_are_nobodys_business(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_rerunfailures(pytester, monkeypatch)
    pytester.makepyfile(test_plain="def test_plain():\n    pass\n")
    result = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "rerunfailures", "--reruns=2"
    )
    result.assert_outcomes(passed=1)


def fake_rerunfailures(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin with the name, the options and the marker of pytest-rerunfailures 16, which is not installed here."""
    pytester.makepyfile(
        rerunfailures="""
        def pytest_addoption(parser):
            parser.addoption("--reruns", action="store", dest="reruns", type=int)
            parser.addoption("--force-reruns", action="store", dest="force_reruns", type=int)
            parser.addini("reruns", "number of times to re-run failed tests", type="string")

        def pytest_configure(config):
            config.addinivalue_line("markers", "flaky(reruns=1): mark test to re-run")
        """
    )
    monkeypatch.syspath_prepend(pytester.path)


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_another_system_than_linux_is_refused(
    platform: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness import settings

    class Elsewhere:
        """The module sys of another system, for this one module."""

        def __getattr__(self, name: str) -> Any:
            return platform if name == "platform" else getattr(sys, name)

    monkeypatch.setattr(settings, "sys", Elsewhere())
    told = refused(pytester)
    assert platform in told
    assert "Linux" in told
    assert NOT_STARTED not in told


def test_what_is_asked_rightly_goes_on_to_start_servers(pytester: pytest.Pytester) -> None:
    """Without this nothing above would show that anything could have been started."""
    assert NOT_STARTED in refused(pytester, "--harness-variant", "naive-ttl")


@pytest.mark.parametrize("args", [("--collect-only",), ("-k", "nothing-of-this-name"), ("--help",)])
def test_where_no_experiment_is_run_nothing_is_started(args: tuple[str, ...], pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_scenario=SCENARIO)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist", *args)
    assert NOT_STARTED not in "\n".join(result.errlines + result.outlines)
    assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def test_tests_that_are_no_scenarios_run_as_if_nothing_were_installed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_plain="def test_plain():\n    pass\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(passed=1)
    assert not Path(pytester.path, "reports").exists()
