"""A PostgreSQL server of the run's own: started within a fifth of a second, thrown away at the end.

It listens on 127.0.0.1 only and asks no password of a role that is no superuser. Nothing is synced to disk: what a
lock on PostgreSQL loses when the disk does is not what is tried here, and 400 experiments share the disk.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import secrets
import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import tenacity

from harness.stack import free_port
from harness.stack import postgres_cluster as cluster
from harness.stack.accounts import Account, Home, ServerUnavailable, cache_directory, server_account
from harness.stack.postgres_databases import Databases, connect
from harness.stack.postgres_install import Installation, find

if TYPE_CHECKING:
    from harness.launcher import Launcher
    from harness.processes import Process

SCHEMAS = ("pg_advisory", "pg_advisory_xact", "reserve_confirm")
"""The built-in variants that keep tables in PostgreSQL: each has a SCHEMA."""

MAX_CONNECTIONS = 600
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 5.0
PORT_ATTEMPTS = 5

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": str(MAX_CONNECTIONS),
    "shared_buffers": "64MB",
    # Files in the data directory go with it; a killed server would leave segments in /dev/shm behind.
    "dynamic_shared_memory_type": "mmap",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "1GB",
    "min_wal_size": "2MB",
    "checkpoint_timeout": "1h",
    # Nothing runs in the background that could wake up in the middle of a measurement.
    "autovacuum": "off",
    "max_logical_replication_workers": "0",
    "bgwriter_lru_maxpages": "0",
    "jit": "off",
    "log_checkpoints": "off",
    "log_timezone": "UTC",
    "timezone": "UTC",
}
_SETTINGS_SINCE = {18: {"io_method": "sync"}}


def variants_schema() -> str:
    """The tables of the built-in variants, as idempotent DDL, in the variants' own words."""
    modules = [importlib.import_module(f"harness.variants.{name}") for name in SCHEMAS]
    return "\n".join(module.SCHEMA for module in modules)


class Postgres(Databases):
    """One server and its databases. A second one, for a worker elsewhere, is simply another Postgres().

    version is "15.18", or the like, once it runs.
    """

    version: str

    def __init__(self, schema: str | None = None) -> None:
        super().__init__("127.0.0.1", 0, cluster.OWNER)
        self._schema = variants_schema() if schema is None else schema
        self._account: Account | None = None
        self._process: Process | None = None
        self._home: Home | None = None

    @property
    def home(self) -> Path:
        """Where its data is while it runs."""
        assert self._home is not None
        return self._home.path

    async def start(self, launcher: Launcher, directory: Path) -> None:
        """Starts the server, its data in memory if there is room, else in directory, the run's own (see Home).

        The first start of a version makes the cluster and takes two seconds. Raises ServerUnavailable where no
        PostgreSQL can be had or started, with the reason; nothing is left behind then.
        """
        try:
            self._account = server_account()
            cache = await asyncio.to_thread(cache_directory, self._account)
            self._home = Home(directory, self._account, "postgres", in_memory=True)
            home = self._home.path
            if cache is None:
                cache = home / "cache"
                cache.mkdir()
            installation = await asyncio.to_thread(find, self._account, cache)
            self.version = installation.version
            await self._boot(launcher, installation, home, cache / cluster.cache_name(installation, self._schema))
            await self.open(self._schema)
        except (OSError, psycopg.Error) as error:
            await self.stop()
            raise ServerUnavailable(f"PostgreSQL could not be set up: {error}") from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends the server at once, without ceremony (SIGQUIT: immediate shutdown), and removes its data."""
        await self.close()
        await self._end(signal.SIGQUIT)
        if self._home is not None:
            await asyncio.to_thread(self._home.remove)
            self._home = None

    async def _boot(self, launcher: Launcher, installation: Installation, home: Path, cached: Path) -> None:
        """Runs the server on a cluster from the cache; a cache that yields none that starts is made anew, once."""
        data = home / "data"
        (home / "pg_hba.conf").write_text(cluster.HBA)
        (home / "pg_hba.conf").chmod(0o644)
        if await asyncio.to_thread(cluster.unpack, cached, data, self._account):
            try:
                await self._run(launcher, installation, data)
                return
            except ServerUnavailable:
                await self._end(signal.SIGQUIT)
                await asyncio.to_thread(shutil.rmtree, data)
        await self._make(launcher, installation, home, cached)
        await asyncio.to_thread(cluster.unpack, cached, data, self._account)
        await self._run(launcher, installation, data)

    async def _make(self, launcher: Launcher, installation: Installation, home: Path, cached: Path) -> None:
        """initdb, then the owner and the schema, then into the cache. Raises ServerUnavailable."""
        data, password_file, password = home / "new", home / "password", secrets.token_hex(16)
        data.mkdir(mode=0o700)
        password_file.touch(mode=0o600)
        password_file.write_text(password)
        if self._account is not None:
            os.chown(data, *self._account)
            os.chown(password_file, *self._account)
        argv = cluster.initdb_argv(installation, data, password_file)
        output = home / "initdb.log"
        status = await (await self._spawn(launcher, installation, argv, output)).wait()
        password_file.unlink()
        if status != 0:
            raise ServerUnavailable(f"initdb ended with {status}: {tail(output)}")
        await self._run(launcher, installation, data, password)
        async with await connect(self.host, self.port, "template1", cluster.SUPERUSER, password) as superuser:
            for statement in cluster.owner_statements(installation.major):
                await superuser.execute(statement.encode())
        async with await self.connect("template1") as owner:
            await owner.execute(self._schema.encode())
        # The first to connect after a definition writes the file of cached definitions that every copy will have.
        await (await self.connect("template1")).close()
        await self._end(signal.SIGINT)
        await asyncio.to_thread(cluster.pack, data, cached)
        await asyncio.to_thread(shutil.rmtree, data)

    async def _run(
        self, launcher: Launcher, installation: Installation, data: Path, password: str | None = None
    ) -> None:
        """Starts the server and waits until it accepts; with a password, as seen by the superuser."""
        output = data.with_suffix(".log")
        user = cluster.OWNER if password is None else cluster.SUPERUSER
        for _ in range(PORT_ATTEMPTS):
            self.port, name = free_port(), secrets.token_hex(8)
            argv = server_argv(installation, data, self.port, name)
            self._process = await self._spawn(launcher, installation, argv, output)
            if await self._accepts(self._process, user, password, name):
                return
            # Somebody else may have taken the port between our looking and the server's binding.
            if "could not bind" not in output.read_text(errors="replace"):
                break
        raise ServerUnavailable(f"PostgreSQL {installation.version} does not start: {tail(output)}")

    async def _spawn(self, launcher: Launcher, installation: Installation, argv: list[str], output: Path) -> Process:
        # LC_ALL: messages in English, and no locale that this machine may not have.
        env = {**os.environ, "LC_ALL": "C"}
        return await launcher.spawn(
            argv, env=env, cwd=str(installation.bin), output=output, user=self._account, farewell=signal.SIGQUIT
        )

    async def _end(self, number: int) -> None:
        if self._process is not None:
            await end(self._process, number)
            self._process = None

    async def _accepts(self, process: Process, user: str, password: str | None, name: str) -> bool:
        """True once this very server answers, False when it has ended. Raises ServerUnavailable after a while."""

        async def answers() -> bool:
            if process.returncode is not None:
                return False
            async with await connect(self.host, self.port, "postgres", user, password) as connection:
                row = await (await connection.execute("SHOW cluster_name")).fetchone()
            # Another's server on this port: ours is about to end for want of it.
            return row == (name,) or await _ended(process, self.port)

        return await until_answered(answers, START_TIMEOUT_S, "PostgreSQL does not answer")


async def until_answered(ask: Callable[[], Awaitable[bool]], within_s: float, complaint: str) -> bool:
    """Asks until there is an answer, and returns it. Raises ServerUnavailable with the complaint after a while."""
    poll = tenacity.AsyncRetrying(
        stop=tenacity.stop_after_delay(within_s),
        wait=tenacity.wait_fixed(0.01),
        retry=tenacity.retry_if_exception_type(psycopg.OperationalError),
    )
    try:
        return await poll(ask)
    except tenacity.RetryError as error:
        why = error.last_attempt.exception()
        raise ServerUnavailable(f"{complaint} within {within_s:.0f} s: {why}") from error


def server_argv(installation: Installation, data: Path, port: int, name: str) -> list[str]:
    """The command line of a server; name is how it is told from another's on the same port (cluster_name)."""
    settings = dict(_SETTINGS)
    for since, more in _SETTINGS_SINCE.items():
        if installation.major >= since:
            settings |= more
    settings |= {"cluster_name": name, "hba_file": str(data.with_name("pg_hba.conf"))}
    options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
    return [str(installation.bin / "postgres"), "-D", str(data), "-p", str(port), *options]


async def _ended(process: Process, port: int) -> bool:
    """Waits for a server to end of itself, and says False: it has not become the one we look for."""
    try:
        await asyncio.wait_for(process.wait(), START_TIMEOUT_S)
    except TimeoutError as error:
        raise ServerUnavailable(f"another PostgreSQL answers on port {port}, and ours runs on") from error
    return False


async def end(process: Process, number: int) -> None:
    """Signals a server and waits until it has ended, for which it is given a few seconds."""
    process.kill(number)
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        process.kill(signal.SIGKILL)
        await process.wait()


def tail(log: Path) -> str:
    """The end of a server's output, on one line."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return " / ".join(line.strip() for line in lines[-4:]) or "it says nothing"
