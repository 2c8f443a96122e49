"""Whole runs against somebody's own servers: they come out as on the harness's, and leave everything as it was."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from postgres.launcher import PlainLauncher

from external.conftest import PASSWORD, Start
from harness.stack.accounts import ServerUnavailable
from harness.stack.postgres import Postgres

CLONE = Path(__file__).parents[2]
VARIANTS = ("naive-ttl", "fencing", "pg-advisory")


@pytest.fixture
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server with one database that is somebody's; the role is no superuser."""
    server, launcher = Postgres("CREATE TABLE IF NOT EXISTS in_every_database ()"), PlainLauncher()
    with asyncio.Runner() as runner:
        try:
            runner.run(server.start(launcher, tmp_path_factory.mktemp("postgres")))
        except ServerUnavailable as error:
            pytest.skip(str(error))
        try:
            make_a_shop(server)
            yield server
        finally:
            runner.run(server.stop())
            runner.run(launcher.kill_all())


def make_a_shop(server: Postgres) -> None:
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE shop")
    with psycopg.connect(server.url("shop"), autocommit=True) as connection:
        connection.execute("CREATE TABLE orders AS SELECT 1 AS n")


def run(report: Path, *args: str, **env: str) -> tuple[str, dict[str, Any]]:
    """A run's output and its results.json."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "HARNESS_"))}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--harness-report", str(report), *args]
    done = subprocess.run(argv, cwd=CLONE, env=clean | env, capture_output=True, text=True, timeout=300, check=False)
    results = report / "results.json"
    return done.stdout + done.stderr, json.loads(results.read_text()) if results.exists() else {}


def held(postgres: Postgres) -> tuple[list[str], list[str], int]:
    """Databases, what template1 defines, rows of the foreign table."""
    with psycopg.connect(postgres.url("postgres")) as connection:
        databases = [name for (name,) in connection.execute("SELECT datname FROM pg_database ORDER BY 1")]
    with psycopg.connect(postgres.url("template1")) as connection:
        tables = [name for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname='public'")]
    with psycopg.connect(postgres.url("shop")) as connection:
        rows = connection.execute("SELECT count(*) FROM orders").fetchone()
    assert rows is not None
    return databases, tables, int(rows[0])


def test_a_run_comes_out_as_ever_and_leaves_all_as_it_was(start: Start, postgres: Postgres, tmp_path: Path) -> None:
    server = start(password=PASSWORD)
    owner = server.client()
    for database, key in {0: "session:1", 7: "cart"}.items():
        server.client(database).set(key, "theirs")
    before = server.everything(), owner.config_get(), owner.info("server")["run_id"], held(postgres)
    url = f"redis://:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}"
    out, results = run(
        tmp_path / "report",
        "scenarios/test_slow_charge.py",
        "scenarios/test_redis_loss.py",
        "-k",
        "before-commit or flush or restart",
        *(word for variant in VARIANTS for word in ("--harness-variant", variant)),
        "--harness-postgres-url",
        f"postgresql://{postgres.user}@127.0.0.1:{postgres.port}",
        HARNESS_REDIS_URL=url,
    )
    assert results, out
    verdicts = {e["id"]: (e["verdict"], e["expected"]) for e in results["experiments"]}
    assert all(verdict in (expected, "not-applicable") for verdict, expected in verdicts.values()), out
    assert {verdict for verdict, _ in verdicts.values()} >= {"exactly-one", "double-charge"}
    assert sum("redis-" in name for name in verdicts) >= 8
    assert (server.everything(), owner.config_get(), owner.info("server")["run_id"], held(postgres)) == before
    assert owner.info("commandstats").get("cmdstat_flushall") is None
    assert owner.info("commandstats").get("cmdstat_flushdb") is None
    assert f"at 127.0.0.1:{server.port}" in results["stack"]["redis"]
    assert f"at 127.0.0.1:{postgres.port}" in results["stack"]["postgres"]
    everything = out + "".join(f.read_text() for f in (tmp_path / "report").iterdir() if f.is_file())
    assert PASSWORD not in everything
    assert quote(PASSWORD, safe="") not in everything


def test_a_server_that_cannot_be_used_stops_the_run_before_it_begins(start: Start, tmp_path: Path) -> None:
    server = start()
    server.client(2).set("cart", "theirs")
    url = f"redis://127.0.0.1:{server.port}/2"
    out, results = run(tmp_path, "scenarios/test_slow_charge.py", "--harness-redis-url", url)
    assert "holds keys in database 2" in out
    assert results == {}
    assert server.everything() == {"db2/cart": "theirs"}


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--harness-redis-url", "redis://h", "--harness-stack", "compose"), "goes with the local stack"),
        (("--harness-redis-flush",), "give --harness-redis-url"),
        (("--harness-redis-url", "rediss://:hunter2@h"), "TLS is not supported"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, args: tuple[str, ...], why: str) -> None:
    out, _ = run(tmp_path, "scenarios/test_slow_charge.py", *args)
    assert why in out
    assert "hunter2" not in out
