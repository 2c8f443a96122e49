"""The pytest plugin: options, fixtures, markers, summary. Thin: what it does is done elsewhere.

It is loaded by every pytest run where lockproof is installed, so what only a scenario needs is imported only there.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from harness import siblings
from harness.options import add_options
from harness.settings import Settings, read, refuse_bad_company

if TYPE_CHECKING:
    from harness.host import EngineHost, Host, SharedHost
    from harness.report import Run
    from harness.scenario import Result
    from harness.sweep import Sweep

SETTINGS: pytest.StashKey[Settings] = pytest.StashKey()
HOST: pytest.StashKey[Host] = pytest.StashKey()
OWN_HOST: pytest.StashKey[EngineHost] = pytest.StashKey()
SHARED: pytest.StashKey[SharedHost] = pytest.StashKey()
RUN: pytest.StashKey[Run] = pytest.StashKey()
PROBLEM: pytest.StashKey[str] = pytest.StashKey()
DEAD_WORKERS: pytest.StashKey[list[str]] = pytest.StashKey()
REFUSED: pytest.StashKey[str] = pytest.StashKey()
WRITTEN: pytest.StashKey[bool] = pytest.StashKey()
"""The workers of pytest-xdist that died, each with what is known of why."""


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "experiments(fault, places, holes): one experiment for each subject and place")
    config.addinivalue_line("markers", "sweep(holes): every boundary of each subject, every fault")
    siblings.refuse_named(config)
    config.stash[SETTINGS] = read(config)


def _host(config: pytest.Config) -> Host:
    """The engine's host: this process's own, or under pytest-xdist the controller's."""
    from harness import host as hosts

    if REFUSED in config.stash:
        raise pytest.UsageError(config.stash[REFUSED])
    if HOST not in config.stash:
        shared = getattr(config, "workerinput", {}).get("lockproof")
        if shared is not None:
            config.stash[HOST] = hosts.connect(*shared)
        else:
            config.stash[HOST] = config.stash[OWN_HOST] = hosts.EngineHost(config.stash[SETTINGS])
            signal.signal(signal.SIGTERM, _terminated)
    return config.stash[HOST]


def _terminated(number: int, _: object) -> None:
    """SIGTERM ends a run as Ctrl-C does: what was done is written down, marked as partial."""
    signal.signal(number, signal.SIG_DFL)
    pytest.exit("terminated by SIGTERM", returncode=128 + number)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist: its workers ask the controller's engine."""
    from harness.host import SharedHost

    config = node.config
    _host(config)
    if SHARED not in config.stash:
        config.stash[SHARED] = SharedHost(config.stash[OWN_HOST])
    shared = config.stash[SHARED]
    node.workerinput["lockproof"] = (shared.address, shared.key)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """pytest-xdist: what killed a worker may have hit more than what pytest-xdist gives to another one."""
    if error and error != "keyboard-interrupt":
        node.config.stash.setdefault(DEAD_WORKERS, []).append(f"{node.gateway.id} ({error})")


def pytest_cmdline_main(config: pytest.Config) -> pytest.ExitCode | int | None:
    """--harness-doctor and --harness-replay run one thing and collect no tests."""
    if config.getoption("help", False) or config.getoption("version", 0):
        return None
    settings = read(config)
    if settings.doctor or settings.replay is not None:
        from harness import single

        refuse_bad_company(config)
        return single.run(settings)
    return None


def pytest_report_header(config: pytest.Config) -> list[str]:
    from harness import writing

    return writing.header(config.stash[SETTINGS])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marks = [(mark, "experiment") for mark in metafunc.definition.iter_markers("experiments")]
    marks += [(mark, "sweep") for mark in metafunc.definition.iter_markers("sweep")]
    for mark, name in marks:
        from harness import scenario

        found = scenario.parameters(mark, metafunc.config.stash[SETTINGS])
        metafunc.parametrize(name, found, indirect=True)


def pytest_collection_finish(session: pytest.Session) -> None:
    """All experiments of the tests that are left run side by side from here on."""
    params = [item.callspec.params for item in session.items if hasattr(item, "callspec")]
    wanted = [p[name] for p in params for name in ("experiment", "sweep") if name in p]
    if not wanted or session.config.option.collectonly:
        return
    try:
        refuse_bad_company(session.config, session.items)
        siblings.refuse_imported()
    except pytest.UsageError as error:
        if not hasattr(session.config, "workerinput"):
            raise
        session.config.stash[REFUSED] = str(error)  # raised here, all that is told is that pytest-xdist crashed
        return
    from harness import scenario

    try:
        scenario.submit(wanted, _host(session.config))
    except scenario.CANNOT_START as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """On a terminal one line says how far it is; the tests then find their experiments done."""
    host = session.config.stash.get(OWN_HOST, None)
    if host is not None and host.engine is not None:
        from harness import writing

        writing.wait_with_progress(host)


@pytest.fixture
def experiment(request: pytest.FixtureRequest) -> Result:
    """The experiment that the test has declared, once it has run."""
    from harness import scenario

    result, properties = scenario.await_experiment(request.param, _host(request.config))
    request.node.user_properties.extend(properties)
    return result


@pytest.fixture
def sweep(request: pytest.FixtureRequest) -> Sweep:
    """Every boundary of a subject with every fault, once all have run."""
    done = _host(request.config).sweep(request.param.subject)
    request.node.user_properties.extend(
        [("subject", done.subject), ("points", str(len(done.points))), ("sentence", done.sentence())]
    )
    return done


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """The controller writes what there is, and a run that shows nothing is not green."""
    config = session.config
    host = config.stash.get(OWN_HOST, None)
    if host is not None:
        from harness import writing

        partial = session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if dead := config.stash.get(DEAD_WORKERS, []):
            partial = True
            config.stash[PROBLEM] = f"a pytest-xdist worker died while the run was under way: {', '.join(dead)}"
        try:
            run = host.run(partial=partial or bool(session.shouldstop))
            if run is not None:
                config.stash[RUN] = run
                green = writing.write(run, config.stash[SETTINGS])
                config.stash[WRITTEN] = True
                if session.exitstatus == pytest.ExitCode.OK and not green:
                    session.exitstatus = pytest.ExitCode.TESTS_FAILED
        except OSError as error:
            config.stash[PROBLEM] = f"the results could not be written: {error}"
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        finally:
            host.stop()
    return (yield)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if RUN in config.stash:
        from harness import writing

        terminalreporter.section("exactly one charge?")
        written = config.stash.get(WRITTEN, False)
        writing.summarize(config.stash[RUN], config.stash[SETTINGS], terminalreporter._tw, written=written)
    if PROBLEM in config.stash:
        terminalreporter.write_line(config.stash[PROBLEM], red=True)
