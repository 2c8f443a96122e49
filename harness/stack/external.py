"""The local stack with one's own Redis, or one's own PostgreSQL, in the place of the harness's."""

from __future__ import annotations

import contextlib

from redis.exceptions import RedisError

from harness.launcher import Keeper
from harness.stack import StackError
from harness.stack.addresses import ServerUrl
from harness.stack.external_postgres import ExternalPostgres
from harness.stack.external_redis import ExternalRedis
from harness.stack.local import LocalStack
from harness.stack.redis import server_version
from harness.stack.room import Needs, Room

_PLENTY = float("inf")


class ExternalStack(LocalStack):
    """What is not given is started here, as on the local stack; so are the Redis servers that experiments break."""

    def __init__(
        self,
        keeper: Keeper,
        redis: ServerUrl | None,
        postgres: ServerUrl | None,
        *,
        flush: bool = False,
        toxiproxy: str | None = None,
    ) -> None:
        super().__init__(keeper, toxiproxy)
        self._redis_url = redis
        self._postgres_url = postgres
        self._flush = flush
        self._external: ExternalRedis | None = None

    async def _start_redis(self) -> None:
        if self._redis_url is None:
            await super()._start_redis()
            return
        self.redis = self._external = server = ExternalRedis(self._redis_url, flush=self._flush)
        await server.ready()
        self.databases = server.databases
        self.room = Room(Needs(_PLENTY, _PLENTY, len(server.databases)))
        self.versions.redis = f"{server.version} at {server.shown}"
        try:
            self.versions.redis += f"; {server_version()} where it is broken"
        except StackError as error:
            self.no_own_redis = f"the Redis at {server.shown} is not the harness's to break, and {error}"

    async def _start_postgres(self) -> None:
        if self._postgres_url is None:
            await super()._start_postgres()
            return
        postgres = ExternalPostgres(self._postgres_url)
        self.postgres = postgres
        await postgres.attach()
        self.advisory.serve(postgres)
        self.versions.postgres = f"{postgres.version} at {self._postgres_url.shown}"
        self.no_second_postgres = (
            f"the PostgreSQL at {self._postgres_url.shown} is not the harness's, and a second one would not know its "
            "roles"
        )

    async def stop(self) -> None:
        if self._external is not None:
            # The server may be gone: then there is nothing to set back.
            with contextlib.suppress(RedisError, OSError):
                await self._external.disable_events()
        await super().stop()
