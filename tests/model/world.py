"""The servers, the clock and the wire of one experiment, put together."""

from __future__ import annotations

from typing import Any

from .machine import Clock, Exchange, Session, Wire
from .servers import LOCK, Postgres, Processor, Redis


class World:
    """Everything an experiment has of its own."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.redis = Redis(self.clock)
        shared = Postgres(self.clock)
        self.postgres = {"A": shared, "B": shared, "C": shared}
        self.processor = Processor(self.clock)
        self.wire = Wire(self.clock, self._serve, self._closed)

    def _serve(self, exchange: Exchange) -> Any:
        servers = {"redis": self.redis, "processor": self.processor, "postgres": self.postgres[exchange.who]}
        return exchange.ask.operation(servers[exchange.ask.link], exchange, *exchange.ask.args)

    def _closed(self, session: Session) -> None:
        if session.link == "postgres":
            self.postgres[session.who].end_session(session)

    def grants(self) -> list[tuple[float, str, float]]:
        """(when, who, lease) of each lock granted, by the servers' account."""
        granted = set(self.redis.grants)
        for server in self.postgres.values():
            granted.update(server.grants)
        return sorted(granted)

    def holds(self, who: str, owner: str) -> bool:
        """Whether this delivery holds the lock, by the server's account."""
        return self.redis.peek(LOCK) == owner or self.postgres[who].holder() == who
