"""The pytest plugin: options, fixtures, markers, summary. Thin: what it does is done elsewhere."""

from __future__ import annotations

import signal
from collections.abc import Generator
from typing import Any

import pytest

from harness import host as hosts
from harness import settings as options
from harness import single, writing
from harness.crew import SubjectError
from harness.processes import HarnessError
from harness.report.junit import properties
from harness.report.outcome import outcome
from harness.report.terminal import summary
from harness.scenario import Declared, Result, SweepOf, declared, parameter, sweep_subjects
from harness.stack import StackError
from harness.sweep import Sweep

SETTINGS = pytest.StashKey[options.Settings]()
HOST = pytest.StashKey[hosts.Host]()
SHARED = pytest.StashKey[hosts.SharedHost]()


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "experiments(fault, places, holes): one experiment for each subject and place")
    config.addinivalue_line("markers", "sweep(holes): every boundary of each subject, every fault")
    settings = config.stash[SETTINGS] = options.read(config)
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workerinput is None:
        config.stash[HOST] = hosts.EngineHost(settings)
        signal.signal(signal.SIGTERM, _terminated)
    elif "lockproof" in workerinput:
        config.stash[HOST] = hosts.connect(*workerinput["lockproof"])


def _terminated(number: int, _: object) -> None:
    """SIGTERM ends a run as Ctrl-C does: what was done is written down, marked as partial."""
    signal.signal(number, signal.SIG_DFL)
    pytest.exit("terminated by SIGTERM", returncode=128 + number)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist: its workers ask the controller's engine."""
    config = node.config
    if SHARED not in config.stash:
        config.stash[SHARED] = hosts.SharedHost(config.stash[HOST])
    shared = config.stash[SHARED]
    node.workerinput["lockproof"] = (shared.address, shared.key)


def pytest_cmdline_main(config: pytest.Config) -> pytest.ExitCode | int | None:
    """--harness-doctor and --harness-replay run one thing and collect no tests."""
    if config.getoption("help", False) or config.getoption("version", 0):
        return None
    settings = options.read(config)
    if settings.doctor or settings.replay is not None:
        return single.run(settings)
    return None


def pytest_report_header(config: pytest.Config) -> list[str]:
    return writing.header(config.stash[SETTINGS])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for mark in metafunc.definition.iter_markers("experiments"):
        found = declared(mark, metafunc.config.stash[SETTINGS])
        metafunc.parametrize("experiment", [parameter(item) for item in found], indirect=True)
    for mark in metafunc.definition.iter_markers("sweep"):
        swept = sweep_subjects(mark, metafunc.config.stash[SETTINGS])
        metafunc.parametrize("sweep", swept, ids=[item.subject for item in swept], indirect=True)


def pytest_collection_finish(session: pytest.Session) -> None:
    """All experiments of the tests that are left run side by side from here on."""
    specs, swept = [], []
    for item in session.items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if isinstance(params.get("experiment"), Declared):
            experiment = params["experiment"]
            specs += [experiment.spec] + ([experiment.control] if experiment.control is not None else [])
        if isinstance(params.get("sweep"), SweepOf):
            swept.append(params["sweep"])
    if not (specs or swept) or session.config.option.collectonly:
        return
    try:
        host = session.config.stash[HOST]
        host.submit(specs)
        for item in swept:
            host.submit_sweep(item.subject, item.holes)
    except (StackError, SubjectError, HarnessError) as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """On a terminal one line says how far it is; the tests then find their experiments done."""
    host = session.config.stash.get(HOST, None)
    if isinstance(host, hosts.EngineHost) and host.engine is not None:
        writing.wait_with_progress(host)


@pytest.fixture
def experiment(request: pytest.FixtureRequest) -> Result:
    """The experiment that the test has declared, once it has run."""
    item: Declared = request.param
    record = request.config.stash[HOST].result(item.spec, item.control)
    request.node.user_properties.extend(properties(record))
    return Result(record)


@pytest.fixture
def sweep(request: pytest.FixtureRequest) -> Sweep:
    """Every boundary of a subject with every fault, once all have run."""
    item: SweepOf = request.param
    done = request.config.stash[HOST].sweep(item.subject)
    request.node.user_properties.extend(
        [("subject", done.subject), ("points", str(len(done.points))), ("sentence", done.sentence())]
    )
    return done


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """The controller writes what there is, and a run that shows nothing is not green."""
    host = session.config.stash.get(HOST, None)
    if isinstance(host, hosts.EngineHost) and host.engine is not None:
        partial = session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        try:
            run = session.config.stash[writing.RUN] = host.run(partial=partial or bool(session.shouldstop))
            if run is not None:
                writing.write(run, session.config.stash[SETTINGS])
                if session.exitstatus == pytest.ExitCode.OK and not outcome(run).green:
                    session.exitstatus = pytest.ExitCode.TESTS_FAILED
        except OSError as error:
            session.config.stash[writing.PROBLEM] = f"the results could not be written: {error}"
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        finally:
            host.stop()
    return (yield)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    run = config.stash.get(writing.RUN, None)
    if run is None:
        return
    settings, writer = config.stash[SETTINGS], terminalreporter._tw
    terminalreporter.section("exactly one charge?")
    for line in summary(run, color=writer.hasmarkup, width=writer.fullwidth, all_rows=settings.all_rows):
        writer.line(line)
    if (problem := config.stash.get(writing.PROBLEM, None)) is not None:
        writer.line(problem, red=True)
    writer.line(f"{settings.report}/results.json")
