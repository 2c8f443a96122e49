"""PgBouncer in transaction mode in front of a PostgreSQL: what a session's lock does not survive.

Every statement outside a transaction may run on another server connection, and whatever a session holds (advisory
locks, settings, prepared statements) stays with the server connection, for whoever is given it next
(https://www.pgbouncer.org/features.html, "SQL feature map for pooling modes").
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from harness.stack import free_port
from harness.stack.accounts import Account, Home, ServerUnavailable, can_read, server_account
from harness.stack.postgres import end, tail, until_answered
from harness.stack.postgres_cluster import OWNER
from harness.stack.postgres_databases import connect

if TYPE_CHECKING:
    from harness.launcher import Launcher
    from harness.processes import Process

START_TIMEOUT_S = 10.0
PORT_ATTEMPTS = 5

CONFIG = """\
[databases]
* = host={host} port={port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = {auth_type}
auth_file = {users}
pool_mode = transaction
max_client_conn = 500
default_pool_size = {pool_size}
ignore_startup_parameters = extra_float_digits,options
server_login_retry = 1
"""
POOL_SIZE = 20
"""Server connections for each database, PgBouncer's own default: a transaction that waits holds up no other."""


class PgBouncer:
    """One pooler for all databases of one server. version is "1.18.0", or the like, once it runs."""

    host = "127.0.0.1"
    port: int
    version: str

    def __init__(self) -> None:
        self._home: Home | None = None
        self._process: Process | None = None
        self._login = (OWNER, "")

    async def start(
        self, launcher: Launcher, directory: Path, server: tuple[str, int], *, user: str = OWNER, password: str = ""
    ) -> int:
        """Starts it in front of the PostgreSQL at server (host, port), for databases of any name; returns its port.

        It connects as user, and that is who may connect to it, with the same password. Raises ServerUnavailable where
        there is no PgBouncer, or none that starts, with the reason.
        """
        self._login = user, password
        account = server_account()
        program = find()
        if not can_read(program, account):
            raise ServerUnavailable(f"{program} is closed to the account it would run as")
        self.version = await asyncio.to_thread(_version, program)
        self._home = Home(directory, account, "pgbouncer")
        try:
            await self._launch(launcher, program, account, server)
        except BaseException:
            await self.stop()
            raise
        return self.port

    async def _launch(
        self, launcher: Launcher, program: Path, account: Account | None, server: tuple[str, int]
    ) -> None:
        assert self._home is not None
        log = self._home.path / "pgbouncer.log"
        for _ in range(PORT_ATTEMPTS):
            self.port = free_port()
            argv = [str(program), str(self._configure(self._home.path, server, account))]
            self._process = await launcher.spawn(argv, cwd="/", output=log, user=account)
            if await self._accepts(self._process):
                return
            # Somebody else may have taken the port between our looking and its binding.
            if "Address already in use" not in log.read_text(errors="replace"):
                break
        raise ServerUnavailable(f"PgBouncer {self.version} does not start: {tail(log)}")

    async def stop(self) -> None:
        """Ends it at once (SIGTERM: immediate shutdown) and removes its files."""
        if self._process is not None:
            await end(self._process, signal.SIGTERM)
            self._process = None
        if self._home is not None:
            self._home.remove()
            self._home = None

    def _configure(self, home: Path, server: tuple[str, int], account: Account | None) -> Path:
        users, config = home / "users.txt", home / "pgbouncer.ini"
        users.touch(mode=0o600)
        users.write_text(" ".join(_quoted(word) for word in self._login) + "\n")
        if account is not None:
            os.chown(users, *account)
        host, port = server
        config.write_text(
            CONFIG.format(
                host=host, port=port, listen_port=self.port, users=users, pool_size=POOL_SIZE,
                auth_type="scram-sha-256" if self._login[1] else "trust",
            )
        )  # fmt: skip
        config.chmod(0o644)
        return config

    async def _accepts(self, process: Process) -> bool:
        """True once it passes a query on to the server, False when it has ended. Raises ServerUnavailable."""

        async def answers() -> bool:
            if process.returncode is not None:
                return False
            async with await connect(self.host, self.port, "postgres", *self._login) as connection:
                await connection.execute("SELECT 1")
            return True

        return await until_answered(answers, START_TIMEOUT_S, "PgBouncer passes nothing on")


def find() -> Path:
    """The program, on PATH or where Debian puts it. Raises ServerUnavailable."""
    # /usr/sbin is on root's PATH only.
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise ServerUnavailable("no pgbouncer on PATH: apt-get install pgbouncer, or see ci/pgbouncer.sh")
    return Path(found).resolve()


def _quoted(word: str) -> str:
    """As in PgBouncer's auth_file: in double quotes, those of its own doubled."""
    return '"' + word.replace('"', '""') + '"'


def _version(program: Path) -> str:
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerUnavailable(f"{program} does not run: {error}") from error
    version = re.search(r"PgBouncer (\S+)", said)
    return version.group(1) if version else "unknown"
