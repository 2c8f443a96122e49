"""The harness's side of servers that run in containers: what differs from the same servers started here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql
from toxiproxy.api import APIConsumer

from harness.network.toxics import Proxy, Toxiproxy
from harness.stack import Address, StackError
from harness.stack.postgres import Postgres
from harness.stack.postgres_cluster import OWNER, owner_statements
from harness.stack.postgres_databases import connect

_TIMEOUT_S = 10.0


class ContainerToxiproxy(Toxiproxy):
    """Toxiproxy in a container: it listens on the ports that are published, and knows the servers by other addresses.

    listeners: its own port -> where that is on this host; inside: a server's address on this host -> the one that
    containers know, which may grow while the stack runs.
    """

    def __init__(
        self, host: str, port: int, listeners: Mapping[int, Address], inside: Mapping[Address, Address]
    ) -> None:
        if not listeners:
            raise StackError(
                "the Toxiproxy container publishes no listeners: see TOXIPROXY_PORTS in docker-compose.yml"
            )
        super().__init__(host, port, listen_host="0.0.0.0", ports=range(min(listeners), max(listeners) + 1))
        self._outside = dict(listeners)
        self._own_port = {address: number for number, address in listeners.items()}
        self._inside = inside

    async def proxy(self, upstream: Address, toxics: Sequence[tuple[str, str, dict[str, int]]] = ()) -> Proxy:
        if upstream not in self._inside:
            raise StackError(f"Toxiproxy, in its container, cannot reach {upstream[0]}:{upstream[1]} of this host")
        made = await super().proxy(self._inside[upstream], toxics)
        made.address = self._outside[made.address[1]]
        return made

    async def give_back(self, proxy: Proxy) -> None:
        proxy.address = self.host, self._own_port[proxy.address]
        await super().give_back(proxy)

    async def clear(self) -> None:
        """Destroys the proxies that an earlier run has left."""
        await self.call(self._clear)

    def _clear(self) -> None:
        for name in APIConsumer.get("/proxies", timeout=_TIMEOUT_S).json():
            if name.startswith("lockproof-"):
                APIConsumer.delete(f"/proxies/{name}", timeout=_TIMEOUT_S)


class ContainerPostgres(Postgres):
    """The stack's PostgreSQL server, which is there already: the databases made in it are dropped at the end.

    Workers and harness are a role that is no superuser, as on the local stack: what a role owns is told apart from
    what every database has, so that a clean one can be used again (see Databases).
    """

    def __init__(self, host: str, port: int, superuser: str, password: str) -> None:
        super().__init__()
        self.host, self.port = host, port
        self.password = password
        self._superuser = superuser

    async def ask_version(self) -> str:
        """Raises psycopg.OperationalError while it does not accept connections."""
        async with await self._as_superuser() as connection:
            row = await (await connection.execute("SELECT current_setting('server_version')")).fetchone()
        assert row is not None
        self.version = str(row[0]).split()[0]
        return self.version

    async def attach(self) -> None:
        """Makes the role, and puts the variants' tables into the template. Raises psycopg.Error."""
        async with await self._as_superuser() as connection:
            known = await connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (OWNER,))
            if await known.fetchone() is None:
                for statement in owner_statements(connection.info.server_version // 10000):
                    await connection.execute(statement.encode())
            with_password = sql.SQL("ALTER ROLE {} PASSWORD {}").format(
                sql.Identifier(OWNER), sql.Literal(self.password)
            )
            await connection.execute(with_password)
        await self.open(self._schema)

    async def _as_superuser(self) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        return await connect(self.host, self.port, "template1", self._superuser, self.password)

    async def stop(self) -> None:
        await self.close(drop=True)
