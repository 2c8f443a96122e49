"""Databases for experiments on a running PostgreSQL server, and the server's own account of locks and sessions."""

from __future__ import annotations

import datetime
import itertools
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import psycopg
import tenacity
from psycopg import sql
from psycopg.rows import class_row

CONNECT_TIMEOUT_S = 5
SESSIONS_END_TIMEOUT_S = 5.0

_FIRST_USER_OID = 16384
"""Objects that are not PostgreSQL's own have higher numbers (FirstNormalObjectId in access/transam.h)."""

_STATE = """
SELECT (SELECT count(*) FROM pg_catalog.pg_stat_activity a WHERE a.datid = d.oid) AS sessions,
       (SELECT (count(*), sum(s.objid::bigint))::text FROM pg_catalog.pg_shdepend s WHERE s.dbid = d.oid) AS objects,
       (SELECT count(*) FROM pg_catalog.pg_db_role_setting r WHERE r.setdatabase = d.oid) AS settings
  FROM pg_catalog.pg_database d WHERE d.datname = %s
"""
"""What a database holds, without connecting to it: every object with an owner has a row in the shared pg_shdepend.

(PostgreSQL documentation, "pg_shdepend": none for the role that initdb made, so that one cannot be used.) Looking
into the database instead takes a new session and its reading of the catalogs, 15 ms where this takes one.
"""

_ADVISORY_LOCKS = """
SELECT d.datname AS database, l.pid, l.classid::bigint AS classid, l.objid::bigint AS objid, l.objsubid, l.mode,
       l.granted, a.client_port
  FROM pg_catalog.pg_locks l
  JOIN pg_catalog.pg_database d ON d.oid = l.database
  LEFT JOIN LATERAL pg_catalog.pg_stat_get_activity(l.pid) a ON true
 WHERE l.locktype = 'advisory' AND d.datname = coalesce(%s, d.datname)
 ORDER BY d.datname, l.granted DESC, l.waitstart, l.pid
"""
"""The view pg_stat_activity would be read even where there is no lock, twice the work for the usual answer."""

_SESSIONS = """
SELECT pid, client_port, application_name, state, query, backend_start, xact_start
  FROM pg_catalog.pg_stat_activity
 WHERE datname = %s AND pid <> pg_backend_pid() AND backend_type = 'client backend'
 ORDER BY backend_start
"""


@dataclass(frozen=True, slots=True)
class AdvisoryLock:
    """One row of pg_locks: who holds (granted) or waits for an advisory lock; client_port is the session's own end."""

    database: str
    pid: int
    classid: int
    objid: int
    objsubid: int
    mode: str
    granted: bool
    client_port: int | None

    @property
    def key(self) -> str:
        """The key as the functions take it: one signed 64-bit number, or two of 32 (objsubid 2)."""
        if self.objsubid == 2:
            return f"{_signed(self.classid, 32)},{_signed(self.objid, 32)}"
        return str(_signed(self.classid << 32 | self.objid, 64))


def _signed(number: int, bits: int) -> int:
    return number - (1 << bits) if number >> (bits - 1) else number


@dataclass(frozen=True, slots=True)
class Session:
    """One row of pg_stat_activity. state: active, idle, idle in transaction, ...; times by the server's clock."""

    pid: int
    client_port: int | None
    application_name: str
    state: str | None
    query: str
    backend_start: datetime.datetime
    xact_start: datetime.datetime | None


@dataclass(frozen=True, slots=True)
class _State:
    sessions: int
    objects: str
    settings: int


class Databases:
    """Databases of one server, one for each experiment, made from a template and used again as long as they are clean.

    A new one takes 10 ms of a processor in memory, and was measured to take 25 to 380 on a disk (300 files); finding
    that a used one is clean takes one. Clean: no sessions, no settings, and nothing defined beyond the schema. Rows
    in the schema's tables stay: each experiment has a customer of its own. Roles and other databases that a subject
    made are the whole server's, and stay too. The calls are for one event loop, and may overlap.
    """

    def __init__(
        self, host: str, port: int, user: str, password: str | None = None, *, template: str = "template1"
    ) -> None:
        self.host = host
        self.port = port
        self.user = user
        self.password = password
        self.maintenance = "postgres"
        """The database that the harness's own connections are to."""
        self._template_name = template
        self._copies_files = True
        self._prefix = f"lp_{secrets.token_hex(3)}"
        self._numbers = itertools.count(1)
        self._clean: list[str] = []
        self._made: set[str] = set()
        self._configured: set[str] = set()
        self._template: _State | None = None
        self._connections: list[psycopg.AsyncConnection[tuple[Any, ...]]] = []

    async def open(self, schema: str) -> None:
        """Connects and puts the schema (idempotent DDL) into the template. Raises psycopg.Error."""
        async with await self.connect(self._template_name) as template:
            await template.execute(schema.encode())
        # Two connections, so that the locks are watched while a database is being made.
        self._connections += [await self.connect(self.maintenance), await self.connect(self.maintenance)]
        self._admin, self._watch = self._connections
        self._server_version = self._admin.info.server_version // 10000
        # CREATE DATABASE refuses while anybody is in the template, and asks again only every 100 ms.
        self._template = await self._left(self._template_name)
        role = await (await self._admin.execute("SELECT current_user::regrole::oid::bigint")).fetchone()
        if role is None or role[0] < _FIRST_USER_OID:
            self._template = None  # nothing that this role makes is counted: no used database is known to be clean

    async def close(self, *, drop: bool = False) -> None:
        """Disconnects; drops what it made first when the server outlives the run."""
        if drop:
            for name in list(self._made):
                await self.drop_database(name)
        for connection in self._connections:
            await connection.close()
        self._connections.clear()

    async def connect(self, database: str) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        """A connection of the harness's own, in autocommit mode. Raises psycopg.OperationalError."""
        return await connect(self.host, self.port, database, self.user, self.password)

    def url(self, database: str, host: str | None = None, port: int | None = None) -> str:
        """The DATABASE_URL of a worker, through its link when host and port are the link's.

        sslmode=disable, because there is no TLS here, which some drivers (Go's lib/pq) otherwise insist on.
        """
        password = "" if self.password is None else f":{quote(self.password, safe='')}"
        where = f"{host or self.host}:{port or self.port}"
        return f"postgresql://{quote(self.user, safe='')}{password}@{where}/{database}?sslmode=disable"

    async def lease(self) -> str:
        """The name of a database with the schema and nothing else, until it is given back."""
        if self._clean:
            return self._clean.pop()
        name = f"{self._prefix}_{next(self._numbers)}"
        await self.create_database(name)
        return name

    async def give_back(self, name: str) -> None:
        """Takes a database back: ends its sessions, and drops it unless it is clean."""
        if name in self._configured:
            await self._admin.execute(sql.SQL("ALTER DATABASE {} RESET ALL").format(sql.Identifier(name)))
            self._configured.discard(name)
        for session in await self.sessions(name):
            await self.terminate(name, session.pid)
        if self._template is not None and await self._left(name) == self._template:
            self._clean.append(name)
        else:
            await self.drop_database(name)

    async def create_database(self, name: str) -> None:
        """Makes a database from the template. Raises psycopg.errors.DuplicateDatabase."""
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
            sql.Identifier(name), sql.Identifier(self._template_name)
        )
        if self._copies_files and self._server_version >= 15:
            # The default, WAL_LOG, is made for servers that cannot afford a checkpoint: twice the work here.
            statement += sql.SQL(" STRATEGY file_copy")
        await self._admin.execute(statement)
        self._made.add(name)

    async def drop_database(self, name: str) -> None:
        """Drops a database with all its sessions."""
        await self._admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        self._made.discard(name)
        self._configured.discard(name)

    async def configure(self, name: str, settings: Mapping[str, str]) -> None:
        """Gives sessions of this database that begin from now on these settings, until it is given back.

        For example {"idle_session_timeout": "500ms"}. Raises psycopg.Error for a setting that is not the user's.
        """
        self._configured.add(name)
        for setting, value in settings.items():
            statement = sql.SQL("ALTER DATABASE {} SET {} = {}")
            await self._admin.execute(
                statement.format(sql.Identifier(name), sql.Identifier(setting), sql.Literal(value))
            )

    async def advisory_locks(self, database: str | None = None) -> list[AdvisoryLock]:
        """The advisory locks held and waited for, holders first: in one database, or by one query in all of them."""
        async with self._watch.cursor(row_factory=class_row(AdvisoryLock)) as cursor:
            return await (await cursor.execute(_ADVISORY_LOCKS, (database,))).fetchall()

    async def sessions(self, database: str) -> list[Session]:
        """The sessions of one database, in the order they began."""
        async with self._watch.cursor(row_factory=class_row(Session)) as cursor:
            return await (await cursor.execute(_SESSIONS, (database,))).fetchall()

    async def terminate(self, database: str, pid: int) -> bool:
        """Ends one session of this database. False when it has none of this pid (any more)."""
        ended = await self._watch.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND datname = %s", (pid, database)
        )
        row = await ended.fetchone()
        return row is not None and bool(row[0])

    async def _left(self, name: str) -> _State | None:
        """What the database holds once its sessions have ended; None if it is gone, or they do not end in time."""

        async def state() -> _State | None:
            async with self._watch.cursor(row_factory=class_row(_State)) as cursor:
                return await (await cursor.execute(_STATE, (name,))).fetchone()

        poll = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_delay(SESSIONS_END_TIMEOUT_S),
            wait=tenacity.wait_fixed(0.002),
            retry=tenacity.retry_if_result(lambda seen: seen is not None and seen.sessions > 0),
        )
        try:
            return await poll(state)
        except tenacity.RetryError:
            return None


async def connect(
    host: str, port: int, database: str, user: str, password: str | None = None
) -> psycopg.AsyncConnection[tuple[Any, ...]]:
    """A connection in autocommit mode that takes nothing from the caller's PG* variables."""
    return await psycopg.AsyncConnection.connect(
        host=host,
        port=port,
        dbname=database,
        user=user,
        password=password or "",
        options="",
        sslmode="disable",
        gssencmode="disable",
        application_name="lockproof",
        connect_timeout=CONNECT_TIMEOUT_S,
        autocommit=True,
    )
