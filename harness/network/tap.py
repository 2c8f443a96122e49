"""The tap: a transparent TCP relay on a worker's link to one server, where every message can be seen, held or lost.

    worker -> tap -> (Toxiproxy ->) server

It knows each message by its boundary, link.label.n.side: the n-th time this label crosses this link. Connections are
no part of the name, because a watchdog borrows a pooled connection of the main thread.

Here is what whoever watches or breaks a link has to do with: a message, and its fate. What relays is beside it: link.py
listens, connection.py carries each connection on.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.network.connection import Connection


class Fate(enum.Enum):
    """What becomes of a message that was intercepted."""

    DELIVER = "deliver"
    DROP = "drop"
    """Never delivered, and nothing behind it in its direction either: the connection is closed in silence."""
    RESET = "reset"
    """Never delivered; both sides of the connection see a reset (RST)."""


@dataclass(slots=True)
class Message:
    """One message of a worker on a link. side is "request" or "reply"; at_ns is when the tap had it whole."""

    link: str
    label: str
    n: int
    side: str
    raw: bytes
    info: dict[str, Any]
    connection: Connection
    at_ns: int
    counted: tuple[int, int] = (0, 0)
    """By the kernel, as the message was intercepted: bytes received from its sender, bytes the other side has."""

    @property
    def boundary(self) -> str:
        return f"{self.link}.{self.label}.{self.n}.{self.side}"

    def held_bytes(self) -> int:
        """How many bytes the kernel counts as sent by one side and still not received by the other.

        A side that has closed its connection meanwhile counts as it stood when the message was intercepted.
        """
        received, acked = self.counted
        return received - max(acked, self.connection.acked(self.side))


Handler = Callable[[Message], Awaitable[Fate]]
Interceptor = Callable[[Message], Handler | None]
