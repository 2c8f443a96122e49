"""Redis messages on the wire: RESP 2 and 3 (redis.io: Redis serialization protocol specification)."""

from __future__ import annotations

import hashlib

from harness.network.framing import Cutter, Frame, Framer, Unparsable, slug

_CONTAINERS = frozenset(
    (
        "acl client cluster command config debug function latency memory "
        "module object pubsub script slowlog xgroup xinfo"
    ).split()
)
_SCRIPTS = frozenset(("eval", "evalsha", "eval_ro", "evalsha_ro"))


def redis_label(args: list[bytes]) -> str:
    """The label of a command: get, client-setinfo, and for scripts a few digits of their SHA-1: eval-3f2a."""
    name = args[0].decode("ascii", "replace").lower()
    if name in _CONTAINERS and len(args) > 1:
        name += "-" + args[1].decode("ascii", "replace").lower()
    elif name in _SCRIPTS and len(args) > 1:
        sha = args[1].lower() if name.startswith("evalsha") else hashlib.sha1(args[1]).hexdigest().encode()
        name = "eval-" + sha[:4].decode("ascii", "replace")
    return slug(name)


class RedisRequests(Cutter):
    """RESP commands: arrays of bulk strings."""

    def cut(self, buffer: bytearray) -> Frame | None:
        if buffer[0] != 0x2A:  # "*"; inline commands are for people, not for clients
            raise Unparsable
        end = buffer.find(b"\r\n")
        if end < 0:
            _refuse_if_too_long(buffer)
            return None
        count = _number(buffer, 1, end)
        position = end + 2
        args: list[bytes] = []
        for _ in range(count):
            end = buffer.find(b"\r\n", position)
            if end < 0:
                return None
            if buffer[position] != 0x24:  # "$"
                raise Unparsable
            length = _number(buffer, position + 1, end)
            position = end + 2
            if len(buffer) < position + length + 2:
                return None
            args.append(bytes(buffer[position : position + length]))
            position += length + 2
        if not args:
            raise Unparsable
        return Frame(redis_label(args), bytes(buffer[:position]), {"args": args})


class RedisReplies(Cutter):
    """RESP values. A push (RESP 3, out of band) is labelled "push", all others answer a request."""

    def cut(self, buffer: bytearray) -> Frame | None:
        end = _resp_end(buffer, 0)
        if end < 0:
            return None
        return Frame("push" if buffer[0] == 0x3E else "", bytes(buffer[:end]))


_LINES = frozenset(b"+-:_#,(")
_BULKS = frozenset(b"$!=")
_AGGREGATES = frozenset(b"*~>")
_MAPS = frozenset(b"%|")


def _resp_end(buffer: bytearray, position: int) -> int:
    """The end of the value at position, or -1 when more bytes are needed."""
    pending = 1
    while pending:
        end = buffer.find(b"\r\n", position)
        if end < 0:
            return -1
        kind = buffer[position]
        pending -= 1
        if kind in _LINES:
            position = end + 2
        elif kind in _BULKS:
            length = _number(buffer, position + 1, end)
            position = end + 2 + (length + 2 if length >= 0 else 0)
            if position > len(buffer):
                return -1
        elif kind in _AGGREGATES:
            pending += max(0, _number(buffer, position + 1, end))
            position = end + 2
        elif kind in _MAPS:
            pending += 2 * _number(buffer, position + 1, end) + (1 if kind == 0x7C else 0)
            position = end + 2
        else:
            raise Unparsable
    return position


def _number(buffer: bytearray, start: int, end: int) -> int:
    try:
        return int(buffer[start:end])
    except ValueError:
        raise Unparsable from None


def _refuse_if_too_long(buffer: bytearray) -> None:
    if len(buffer) > 64:
        raise Unparsable


def framers() -> tuple[Framer, Framer]:
    """(requests, replies) of a new connection."""
    return RedisRequests(), RedisReplies()
