"""Somebody's own Redis, put under test as it is: --harness-redis-url.

What is done to it, and no more: databases that were empty when the run began are used, one for each experiment under
way; of the keys that appear in them during an experiment those are deleted that a worker has named or that bear the
experiment's customer or invoice; keyspace events are switched on where they are not, and set back at the end. It is
never flushed (unless told so, and then only the databases that are used), filled, restarted or killed: for that the
harness starts servers of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import redis.asyncio as aioredis
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from harness.stack import StackError
from harness.stack.addresses import ServerUrl
from harness.stack.redis import EVENTS, RedisServer, tells_all

MOST_DATABASES = 32
"""How many experiments share it at most: each has some ten connections, and others use this server too."""


class ExternalRedis(RedisServer):
    """A server that is there already, and whose data is somebody else's."""

    def __init__(self, url: ServerUrl, *, flush: bool = False) -> None:
        super().__init__(*url.address, password=url.password)
        self._url = url
        self._flush = flush
        self._events: tuple[str, str] | None = None
        """What notify-keyspace-events was, and what we made of it; None where it was left alone."""
        self._before: dict[int, frozenset[bytes]] = {}
        self._flushed = 0
        self.databases: Sequence[int] = ()

    @property
    def shown(self) -> str:
        return self._url.shown

    @property
    def login(self) -> tuple[str, ...]:
        if self._url.password is None:
            return ()
        return "AUTH", *((self._url.user,) if self._url.user else ()), self._url.password

    @property
    def event_patterns(self) -> Sequence[str]:
        return [f"__keyevent@{database}__:*" for database in self.databases]

    def url(self, host: str, port: int, database: int) -> str:
        return f"redis://{self._url.credentials}{host}:{port}/{database}"

    def new_client(self) -> aioredis.Redis:
        return self.make_client(username=self._url.user)

    async def ready(self) -> None:
        """Finds out what is there, and which databases may be used. Raises StackError with the remedy."""
        try:
            await self.client.ping()
            await self._read_version()
            await self._refuse_what_is_not_one_primary()
            self.databases = await self._usable()
            self._flushed = await self._flushes()
        except AuthenticationError as error:
            raise StackError(f"Redis at {self.shown} refuses the user or the password: {error}") from error
        except ResponseError as error:
            raise StackError(f"Redis at {self.shown} refuses what the harness has to ask: {error}") from error
        except (RedisError, OSError) as error:
            raise StackError(f"Redis at {self.shown} (--harness-redis-url) does not answer: {error}") from error

    async def _refuse_what_is_not_one_primary(self) -> None:
        if (await self.info("cluster")).get("cluster_enabled") == "1":
            raise StackError(
                f"Redis at {self.shown} is in cluster mode, where clients are sent to other servers, past the tap: "
                "give a single server of the same version"
            )
        if (await self.info("replication")).get("role") != "master":
            raise StackError(f"Redis at {self.shown} is a replica: give its primary, or a single server")

    async def _usable(self) -> Sequence[int]:
        """The databases to use: the one of the URL, else all that are empty. Raises StackError when there is none."""
        used = {int(name.removeprefix("db")) for name in await self.info("keyspace") if name.startswith("db")}
        if self._url.database is not None:
            wanted: Sequence[int] = [int(self._url.database)]
        else:
            wanted = range(await self._count())
        found = [database for database in wanted if self._flush or database not in used]
        if not found:
            which = f"database {wanted[0]}" if len(wanted) == 1 else f"each of its {len(wanted)} databases"
            raise StackError(
                f"Redis at {self.shown} holds keys in {which}, and only empty ones are used: empty one, give another "
                "server, or --harness-redis-flush to have the databases emptied that are used, again and again"
            )
        return found[:MOST_DATABASES]

    async def _count(self) -> int:
        """How many databases there are; where CONFIG GET is forbidden they are counted by selecting them."""
        (answer,) = await self.in_database(0, ("CONFIG GET", "databases"))
        if isinstance(answer, dict) and "databases" in answer:
            return int(answer["databases"])
        for count in range(1, MOST_DATABASES):
            try:
                await self.in_database(count)
            except ResponseError:
                return count
        return MOST_DATABASES

    # --- keyspace events ---

    async def enable_events(self, client: aioredis.Redis) -> None:
        try:
            had = await _notified(client)
            if tells_all(had):
                return
            await client.config_set("notify-keyspace-events", "".join(dict.fromkeys(had + EVENTS)))
            self._events = had, await _notified(client)
        except ResponseError as error:
            raise StackError(
                f"Redis at {self.shown} does not let the harness ask for keyspace events ({error}), and without them "
                f"it cannot see who holds the lock: set notify-keyspace-events to {EVENTS} in its configuration (in "
                "the parameter group of a hosted one), and let this user CONFIG GET it"
            ) from error

    async def disable_events(self) -> None:
        """Sets back what enable_events() has changed, unless somebody has changed it since."""
        if self._events is None:
            return
        (had, made), self._events = self._events, None
        if await _notified(self.client) == made:
            await self.client.config_set("notify-keyspace-events", had)

    async def tampering(self) -> str | None:
        if await self._flushes() > self._flushed:
            return (
                f"a client of Redis at {self.shown} has sent FLUSHALL: the locks of all experiments under way went "
                "with it. Have your job and your setup send FLUSHDB: each experiment has a database to itself"
            )
        return await super().tampering()

    async def _flushes(self) -> int:
        """How often FLUSHALL was sent to it so far, by whomever; 0 where it does not say."""
        (answer,) = await self.in_database(0, ("INFO", "commandstats"))
        return int(answer.get("cmdstat_flushall", {}).get("calls", 0)) if isinstance(answer, dict) else 0

    # --- databases ---

    async def lend(self, database: int) -> None:
        if self._flush:
            await self.flush(database)
        self._before[database] = frozenset(await self._keys(database))

    async def take_back(self, database: int, named: Collection[bytes], marks: Collection[bytes]) -> None:
        if self._flush:
            await self.flush(database)
            return
        before = self._before.pop(database)
        appeared = [key for key in await self._keys(database) if key not in before]
        ours = [key for key in appeared if key in named or any(mark in key for mark in marks)]
        if ours:
            await self.in_database(database, ("DEL", *ours))

    async def _keys(self, database: int) -> set[bytes]:
        """All names in a database, a few at a time, so that nobody waits for it. Raises RedisError, OSError."""
        found: set[bytes] = set()
        cursor: Any = 0
        while True:
            (answer,) = await self.in_database(database, ("SCAN", cursor, "COUNT", 1000))
            if isinstance(answer, Exception):
                raise answer
            cursor, names = answer
            found.update(names)
            if int(cursor) == 0:
                return found


async def _notified(client: aioredis.Redis) -> str:
    """The classes of keyspace events that are told now. Raises RedisError."""
    return (await client.config_get("notify-keyspace-events")).get("notify-keyspace-events") or ""
