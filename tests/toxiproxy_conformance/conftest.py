from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from .bench import Bench, is_coroutine
from .servers import KINDS, Kind, Server, running


@pytest.fixture(scope="session", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture(scope="session")
def server(kind: Kind) -> Iterator[Server]:
    """One server for the tests that ask and are answered."""
    with running(kind) as started:
        yield started


@pytest.fixture
def fresh(server: Server) -> Iterator[Server]:
    """The server without any proxy."""
    _empty(server)
    yield server
    _empty(server)


@pytest.fixture
def own(kind: Kind) -> Iterator[Server]:
    """A server of the test's own, for proxies that nothing but its end can delete."""
    with running(kind) as started:
        yield started


@pytest.fixture(scope="session")
def bench(kind: Kind) -> Iterator[Bench]:
    """One server for the tests that measure: they run side by side, so that none may reset it."""
    with running(kind) as started:
        bench = Bench(started)
        try:
            yield bench
        finally:
            bench.close()


@pytest.fixture(scope="session")
def stand_in() -> Iterator[Server]:
    with running("stand-in") as started:
        yield started


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not is_coroutine(pyfuncitem):
        return None
    bench = pyfuncitem.funcargs["bench"]
    assert isinstance(bench, Bench)
    bench.result_of(pyfuncitem)
    return True


def _empty(server: Server) -> None:
    for name in server.call("GET", "/proxies").json:
        assert server.call("DELETE", f"/proxies/{quote(name, safe='')}").status == 204
