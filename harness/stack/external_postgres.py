"""Somebody's own PostgreSQL, put under test as it is: --harness-postgres-url.

The harness makes databases of its own there (lp_...), one as a template and one for each experiment under way, and
drops them at the end. It changes nothing else: no role, no setting, nothing in a database that was there before.
"""

from __future__ import annotations

import psycopg
from psycopg import sql

from harness.stack import StackError
from harness.stack.addresses import ServerUrl
from harness.stack.postgres import Postgres


class ExternalPostgres(Postgres):
    """A server that is there already; the role needs to be allowed to create databases, and no more."""

    def __init__(self, url: ServerUrl) -> None:
        super().__init__()
        self.host, self.port = url.address
        self.user, self.password = url.user or "", url.password
        self.maintenance = url.database or "postgres"
        self._template_name = f"{self._prefix}_template"
        self._copies_files = False
        self._shown = url.shown

    async def attach(self) -> None:
        """Makes the template. Raises StackError with the remedy."""
        try:
            async with await self.connect(self.maintenance) as connection:
                row = await (await connection.execute("SHOW server_version")).fetchone()
                assert row is not None
                self.version = str(row[0]).split()[0]
                await connection.execute(
                    sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(self._template_name))
                )
            self._made.add(self._template_name)
            await self.open(self._schema)
        except psycopg.errors.InsufficientPrivilege as error:
            raise StackError(
                f"PostgreSQL at {self._shown}: {self.user} may not create databases ({error}), and each experiment "
                f"needs one of its own: ALTER ROLE {self.user} CREATEDB"
            ) from error
        except psycopg.Error as error:
            raise StackError(
                f"PostgreSQL at {self._shown} (--harness-postgres-url) cannot be used as {self.user}: {error}"
            ) from error

    async def stop(self) -> None:
        await self.close(drop=True)
