"""One event loop, one PostgreSQL, one Redis and one processor for all tests here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from harness.stack.postgres import Postgres
from postgres.launcher import PlainLauncher
from postgres.shop import LEASE_MS, Invoice, Open, Servers, serve


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def launcher(runner: asyncio.Runner) -> Iterator[PlainLauncher]:
    launcher = PlainLauncher()
    yield launcher
    runner.run(launcher.kill_all())


@pytest.fixture(scope="session")
def postgres(
    runner: asyncio.Runner, launcher: PlainLauncher, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Postgres]:
    server = Postgres()
    runner.run(server.start(launcher, tmp_path_factory.mktemp("postgres")))
    yield server
    runner.run(server.stop())


@pytest.fixture(scope="session")
def servers(runner: asyncio.Runner, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with serve(tmp_path_factory.mktemp("shop"), postgres, runner) as servers:
        yield servers


@pytest.fixture
def invoice(servers: Servers) -> Iterator[Open]:
    """Makes invoices; their workers and databases end with the test."""
    opened: list[Invoice] = []

    def make(variant: str, lease_ms: int = LEASE_MS, port: int | None = None) -> Invoice:
        database = servers.runner.run(servers.postgres.lease())
        opened.append(Invoice(servers, variant, database, lease_ms, port))
        return opened[-1]

    yield make
    for invoice in opened:
        invoice.lift()
        for worker in invoice.workers:
            worker.crash()
        servers.runner.run(servers.postgres.give_back(invoice.database))
