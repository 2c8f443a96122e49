"""Cutting a byte stream into messages and naming them: what all protocols share.

A framer sees one direction of one connection. feed() returns the whole messages that the new bytes complete; what is
not understood comes out as a message called "bytes", so that nothing is ever held back for lack of understanding.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Protocol

BYTES = "bytes"
_UNNAMEABLE = re.compile(r"[^a-z0-9]+")


def protocol_of(link: str) -> str:
    """What is spoken on a link: redis on redis, and on redis-2 of several nodes."""
    return link.partition("-")[0]


def slug(text: str) -> str:
    """Lower case, words joined by hyphens; "bytes" when nothing is left."""
    return _UNNAMEABLE.sub("-", text.lower()).strip("-") or BYTES


@dataclass(slots=True)
class Frame:
    """One message: its label (lower case, ids stripped), its bytes and what was understood of it.

    Replies take the label of the request they answer, which only the connection knows: label is "" for these.
    """

    label: str
    raw: bytes
    info: dict[str, Any] = field(default_factory=dict)


class Framer(Protocol):
    def feed(self, data: bytes) -> list[Frame]: ...

    def rest(self) -> bytes: ...


class Unparsable(Exception):
    """These bytes are not the protocol that was expected."""


class Opaque:
    """Every chunk of bytes is a message."""

    def feed(self, data: bytes) -> list[Frame]:
        return [Frame(BYTES, data)]

    def rest(self) -> bytes:
        return b""


class Cutter:
    """Shared by the framers: keeps the unfinished rest, and gives up on the protocol for good when it is not met."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._opaque = False

    def feed(self, data: bytes) -> list[Frame]:
        if self._opaque:
            return [Frame(BYTES, data)]
        self._buffer += data
        frames: list[Frame] = []
        try:
            while self._buffer and (frame := self.cut(self._buffer)) is not None:
                frames.append(frame)
                del self._buffer[: len(frame.raw)]
        except Unparsable:
            self._opaque = True
            frames.append(Frame(BYTES, bytes(self._buffer)))
            self._buffer.clear()
        return frames

    def rest(self) -> bytes:
        """Bytes of a message that never became whole: taken when the connection ends."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def cut(self, buffer: bytearray) -> Frame | None:
        """The first whole message, or None when more bytes are needed. Raises Unparsable."""
        raise NotImplementedError
