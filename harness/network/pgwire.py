"""PostgreSQL messages on the wire (PostgreSQL documentation: Frontend/Backend Protocol, Message Formats)."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from harness.network.framing import Cutter, Frame, Framer, Unparsable

_SPECIAL_REQUESTS = {80877103: "ssl-request", 80877104: "gss-request", 80877102: "cancel", 196608: "startup"}
_ENDS_REQUEST = frozenset(b"QSXHpcf")
_SQL_WORDS = re.compile(rb"\s*(?:/\*.*?\*/\s*)*([a-zA-Z]+)", re.DOTALL)


class PostgresRequests(Cutter):
    """Frontend messages; those of one round trip (Parse, Bind, ... Sync) are one request, named by its SQL verb."""

    def __init__(self, session: PostgresSession) -> None:
        super().__init__()
        self._session = session

    def cut(self, buffer: bytearray) -> Frame | None:
        if self._session.encrypted:
            raise Unparsable
        if not self._session.started:
            return self._special(buffer)
        position, sql = 0, b""
        while True:
            if len(buffer) < position + 5:
                return None
            kind, length = buffer[position], struct.unpack_from("!I", buffer, position + 1)[0]
            end = position + 1 + length
            if len(buffer) < end:
                return None
            payload = bytes(buffer[position + 5 : end])
            if kind == 0x51:  # Query
                sql = sql or payload.rstrip(b"\0")
            elif kind == 0x50:  # Parse: name, then the statement
                sql = sql or payload.split(b"\0", 2)[1]
            position = end
            if kind in _ENDS_REQUEST:
                break
        word = _SQL_WORDS.match(sql)
        other = {0x58: "terminate", 0x70: "password"}.get(kind, "execute")
        label = word.group(1).decode().lower() if word else other
        return Frame(label, bytes(buffer[:position]), {"sql": sql.decode("utf-8", "replace"), "silent": kind == 0x58})

    def _special(self, buffer: bytearray) -> Frame | None:
        if len(buffer) < 8:
            return None
        length, code = struct.unpack_from("!II", buffer)
        if length > 10_000 or (code not in _SPECIAL_REQUESTS and code >> 16 != 3):
            raise Unparsable
        if len(buffer) < length:
            return None
        label = _SPECIAL_REQUESTS.get(code, "startup")
        self._session.started = label == "startup"
        self._session.one_byte = label in ("ssl-request", "gss-request")
        return Frame(label, bytes(buffer[:length]), {"sql": "", "silent": label == "cancel"})


class PostgresReplies(Cutter):
    """Backend messages up to ReadyForQuery, or up to an authentication request, are one reply."""

    def __init__(self, session: PostgresSession) -> None:
        super().__init__()
        self._session = session

    def cut(self, buffer: bytearray) -> Frame | None:
        if self._session.one_byte:
            self._session.one_byte = False
            if buffer[:1] == b"S":
                self._session.encrypted = True
            return Frame("", bytes(buffer[:1]))
        if self._session.encrypted:
            raise Unparsable
        position = 0
        info: dict[str, int] = {}
        while True:
            if len(buffer) < position + 5:
                return None
            kind, length = buffer[position], struct.unpack_from("!I", buffer, position + 1)[0]
            end = position + 1 + length
            if len(buffer) < end:
                return None
            if kind == 0x4B:  # BackendKeyData: the server's own number for this session
                info["backend_pid"] = struct.unpack_from("!I", buffer, position + 5)[0]
            wants_answer = kind == 0x52 and struct.unpack_from("!I", buffer, position + 5)[0] not in (0, 12)
            position = end
            if kind == 0x5A or wants_answer:  # ReadyForQuery
                return Frame("", bytes(buffer[:position]), dict(info))
            if kind == 0x4E and position == len(buffer):  # a lone notice
                return Frame("notice", bytes(buffer[:position]))


@dataclass(slots=True)
class PostgresSession:
    """What both directions of one PostgreSQL connection have to know of each other."""

    started: bool = False
    one_byte: bool = False
    encrypted: bool = False


def framers() -> tuple[Framer, Framer]:
    """(requests, replies) of a new connection."""
    session = PostgresSession()
    return PostgresRequests(session), PostgresReplies(session)
