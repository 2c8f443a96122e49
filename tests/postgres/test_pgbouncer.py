"""PgBouncer in transaction mode: it passes transactions on, and a session's lock is nobody's in particular."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from harness.stack.accounts import ServerUnavailable
from harness.stack.pgbouncer import PgBouncer, find
from harness.stack.postgres import Postgres
from postgres.launcher import PlainLauncher
from postgres.shop import Open, until


@pytest.fixture(scope="module")
def pooler(
    runner: asyncio.Runner,
    launcher: PlainLauncher,
    postgres: Postgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[PgBouncer]:
    pooler = PgBouncer()
    try:
        runner.run(pooler.start(launcher, tmp_path_factory.mktemp("pgbouncer"), (postgres.host, postgres.port)))
    except ServerUnavailable as error:
        pytest.skip(str(error))
    yield pooler
    runner.run(pooler.stop())


@pytest.fixture
def url(runner: asyncio.Runner, postgres: Postgres, pooler: PgBouncer) -> Iterator[str]:
    name = runner.run(postgres.lease())
    yield postgres.url(name, port=pooler.port)
    runner.run(postgres.give_back(name))


def test_a_sessions_lock_is_given_to_two_through_the_pooler(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as first, psycopg.connect(url, autocommit=True) as second:
        for connection in (first, second):
            assert connection.execute("SELECT pg_try_advisory_lock(1)").fetchone() == (True,)


def test_a_transactions_lock_is_given_to_one_through_the_pooler(url: str) -> None:
    with psycopg.connect(url) as first, psycopg.connect(url) as second:
        assert first.execute("SELECT pg_try_advisory_xact_lock(1)").fetchone() == (True,)
        assert second.execute("SELECT pg_try_advisory_xact_lock(1)").fetchone() == (False,)


def test_hole_a_sessions_lock_charges_twice_through_the_pooler(invoice: Open, pooler: PgBouncer) -> None:
    bill = invoice("pg_advisory", port=pooler.port)
    bill.rule(fail="hold-before-commit", who="A")
    first = bill.deliver("A")
    bill.wait_for("charge-arrived", "A")
    assert bill.run("B")[0] == 0
    bill.lift()
    assert first.end()[0] == 0
    assert bill.charged_by() == ["B", "A"]


@pytest.mark.parametrize("variant", ["pg_advisory_xact", "reserve_confirm"])
def test_what_ends_with_its_transaction_charges_once_through_the_pooler(
    invoice: Open, pooler: PgBouncer, variant: str
) -> None:
    bill = invoice(variant, port=pooler.port)
    bill.rule(fail="hold-before-commit", who="A")
    first = bill.deliver("A")
    bill.wait_for("charge-arrived", "A")
    second = bill.deliver("B")
    until(lambda: len(bill.call(bill.servers.postgres.sessions(bill.database))) >= 1)
    bill.lift()
    assert first.end()[0] == 0
    assert second.end()[0] == 0
    assert bill.charged_by() == ["A"]


def test_a_database_is_used_again_though_the_pooler_holds_connections_to_it(
    runner: asyncio.Runner, postgres: Postgres, pooler: PgBouncer
) -> None:
    name = runner.run(postgres.lease())
    for _ in range(2):
        with psycopg.connect(postgres.url(name, port=pooler.port)) as connection:
            connection.execute("SELECT FROM lockproof_intents")
        assert runner.run(postgres.sessions(name)) != []
        runner.run(postgres.give_back(name))
        assert runner.run(postgres.lease()) == name
    runner.run(postgres.give_back(name))


def test_nothing_is_left_once_it_has_stopped(
    runner: asyncio.Runner, pooler: PgBouncer, postgres: Postgres, tmp_path: Path
) -> None:
    launcher, another = PlainLauncher(), PgBouncer()
    runner.run(another.start(launcher, tmp_path, (postgres.host, postgres.port)))
    assert another.port != pooler.port
    assert launcher.left()
    runner.run(another.stop())
    assert launcher.left() == []
    assert os.listdir(tmp_path) == []


def test_where_there_is_none_the_reason_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_args, **_options: None)
    with pytest.raises(ServerUnavailable, match="apt-get install pgbouncer"):
        find()
