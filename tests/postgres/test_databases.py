"""A database for each experiment, clean when it is leased, and what the server says of its locks and sessions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from harness.stack.postgres import Postgres
from harness.stack.postgres_databases import Databases


@pytest.fixture
def database(runner: asyncio.Runner, postgres: Postgres) -> Iterator[str]:
    name = runner.run(postgres.lease())
    yield name
    if name in postgres._made and name not in postgres._clean:
        runner.run(postgres.drop_database(name))


@contextlib.contextmanager
def session(postgres: Postgres, database: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(postgres.url(database), autocommit=True) as connection:
        yield connection


def test_a_leased_database_has_the_tables_of_the_variants(postgres: Postgres, database: str) -> None:
    with session(postgres, database) as connection:
        connection.execute("SELECT customer, invoice, charge FROM lockproof_invoices")
        connection.execute("SELECT customer, invoice, id, reserved_at, charge FROM lockproof_intents")


def test_a_database_in_which_only_rows_were_written_is_used_again(
    runner: asyncio.Runner, postgres: Postgres, database: str
) -> None:
    with session(postgres, database) as connection:
        connection.execute("INSERT INTO lockproof_invoices VALUES ('c', 'i', 'ch')")
    runner.run(postgres.give_back(database))
    assert runner.run(postgres.lease()) == database


@pytest.mark.parametrize(
    "definition",
    [
        "CREATE TABLE mine (id int)",
        "CREATE TABLE mine AS SELECT 1",
        "CREATE TEMP TABLE mine (id int)",
        "CREATE VIEW mine AS SELECT 1",
        "CREATE SEQUENCE mine",
        "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE TYPE mine AS ENUM ('a')",
        "CREATE DOMAIN mine AS int",
        "CREATE SCHEMA mine",
        "SELECT lo_create(0)",
        "DROP TABLE lockproof_intents",
        "DROP TABLE lockproof_intents; CREATE TABLE lockproof_intents (id int)",
        "ALTER DATABASE {} SET statement_timeout = '1s'",
        "ALTER ROLE lockproof IN DATABASE {} SET statement_timeout = '1s'",
    ],
)
def test_a_database_in_which_anything_was_defined_is_not_used_again(
    runner: asyncio.Runner, postgres: Postgres, database: str, definition: str
) -> None:
    temporary = "TEMP" in definition
    with session(postgres, database) as connection:
        connection.execute(definition.format(database).encode())
    runner.run(postgres.give_back(database))
    # What ends with the session leaves nothing behind: then the database is as it was.
    assert (database in postgres._clean) == temporary
    assert (database in postgres._made) == temporary


def test_for_a_role_whose_objects_are_not_counted_every_database_is_a_new_one(
    runner: asyncio.Runner, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is for the role that initdb made: a container's POSTGRES_USER."""
    monkeypatch.setattr("harness.stack.postgres_databases._FIRST_USER_OID", 1 << 31)
    others = Databases(postgres.host, postgres.port, "lockproof")
    runner.run(others.open(""))
    name = runner.run(others.lease())
    runner.run(others.give_back(name))
    assert runner.run(others.lease()) != name
    runner.run(others.close(drop=True))
    with session(postgres, "postgres") as connection:
        left = connection.execute("SELECT FROM pg_database WHERE starts_with(datname, %s)", [others._prefix])
        assert left.fetchone() is None


def test_sessions_are_ended_before_a_database_is_used_again(
    runner: asyncio.Runner, postgres: Postgres, database: str
) -> None:
    with psycopg.connect(postgres.url(database)) as left:
        left.execute("SELECT pg_advisory_lock(1)")
        left.execute("INSERT INTO lockproof_invoices VALUES ('never', 'committed', 'x')")
        runner.run(postgres.give_back(database))
        assert runner.run(postgres.lease()) == database
        assert runner.run(postgres.advisory_locks(database)) == []
        with pytest.raises(psycopg.OperationalError):
            left.execute("SELECT 1")
    with session(postgres, database) as connection:
        assert connection.execute("SELECT FROM lockproof_invoices WHERE customer = 'never'").fetchone() is None


def test_settings_hold_for_new_sessions_until_the_database_is_given_back(
    runner: asyncio.Runner, postgres: Postgres, database: str
) -> None:
    runner.run(postgres.configure(database, {"idle_session_timeout": "100ms"}))
    with session(postgres, database) as connection:
        assert connection.execute("SHOW idle_session_timeout").fetchone() == ("100ms",)
        with pytest.raises(psycopg.OperationalError):
            runner.run(until_terminated(connection))
    runner.run(postgres.give_back(database))
    assert runner.run(postgres.lease()) == database
    with session(postgres, database) as connection:
        assert connection.execute("SHOW idle_session_timeout").fetchone() == ("0",)


async def until_terminated(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Reads what the server has to say to a session that asks nothing; raises when it ends the session."""
    for _ in connection.notifies(timeout=10):
        pass


def test_leases_overlap_and_each_gets_its_own(runner: asyncio.Runner, postgres: Postgres) -> None:
    async def several() -> list[str]:
        return await asyncio.gather(*(postgres.lease() for _ in range(4)))

    names = runner.run(several())
    assert len(set(names)) == 4
    for name in names:
        runner.run(postgres.drop_database(name))


def test_one_query_sees_who_holds_and_who_waits_in_every_database(
    runner: asyncio.Runner, postgres: Postgres, database: str
) -> None:
    other = runner.run(postgres.lease())
    with session(postgres, database) as holder, session(postgres, other) as elsewhere:
        holder.execute("SELECT pg_advisory_lock(-3)")
        elsewhere.execute("SELECT pg_advisory_lock(-1, 5)")
        with contextlib.closing(psycopg.connect(postgres.url(database), autocommit=True)) as waiter:
            waiter.pgconn.send_query(b"SELECT pg_advisory_lock(-3)")
            seen = runner.run(locks_when(postgres, 3))
            holders = {(lock.database, lock.key): lock for lock in seen if lock.granted}
            assert set(holders) == {(database, "-3"), (other, "-1,5")}
            assert holders[database, "-3"].pid == holder.info.backend_pid
            assert holders[database, "-3"].client_port == local_port(holder)
            (waiting,) = (lock for lock in seen if not lock.granted)
            assert (waiting.database, waiting.key, waiting.pid) == (database, "-3", waiter.info.backend_pid)
            assert [lock.database for lock in runner.run(postgres.advisory_locks(other))] == [other]
    runner.run(postgres.drop_database(other))


async def locks_when(postgres: Postgres, count: int) -> list[Any]:
    async with asyncio.timeout(10):
        while len(seen := await postgres.advisory_locks()) != count:
            await asyncio.sleep(0.005)
    return seen


def local_port(connection: psycopg.Connection[tuple[Any, ...]]) -> int:
    with socket.socket(fileno=os.dup(connection.fileno())) as sock:
        return int(sock.getsockname()[1])


def test_sessions_are_listed_with_what_they_are_doing(
    runner: asyncio.Runner, postgres: Postgres, database: str
) -> None:
    assert runner.run(postgres.sessions(database)) == []
    with psycopg.connect(postgres.url(database)) as connection:
        connection.execute("SELECT 42")
        (seen,) = runner.run(postgres.sessions(database))
        assert (seen.pid, seen.client_port) == (connection.info.backend_pid, local_port(connection))
        assert (seen.state, seen.query) == ("idle in transaction", "SELECT 42")
        assert seen.xact_start is not None
        assert seen.xact_start >= seen.backend_start


def test_only_a_session_of_the_database_named_is_terminated(
    runner: asyncio.Runner, postgres: Postgres, database: str
) -> None:
    with session(postgres, database) as connection:
        pid = connection.info.backend_pid
        assert not runner.run(postgres.terminate("postgres", pid))
        connection.execute("SELECT 1")
        assert runner.run(postgres.terminate(database, pid))
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert not runner.run(postgres.terminate(database, pid))


def test_a_workers_url_goes_through_the_link(postgres: Postgres) -> None:
    assert postgres.url("lp_1", port=4711) == "postgresql://lockproof@127.0.0.1:4711/lp_1?sslmode=disable"
    assert postgres.url("lp_1", host="tap", port=1) == "postgresql://lockproof@tap:1/lp_1?sslmode=disable"
