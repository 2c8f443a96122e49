"""One PostgreSQL and one event loop for all tests here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from harness.stack.postgres import Postgres
from postgres.launcher import PlainLauncher


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
