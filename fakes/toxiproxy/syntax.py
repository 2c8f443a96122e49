"""JSON text to values, as Go's encoding/json reads a stream: the first value counts, what follows it is ignored.

The errors are that package's, word for word, because Toxiproxy hands them on in its answers (scanner.go, decode.go).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MAX_DEPTH = 10_000
"""Open arrays and objects beyond which encoding/json refuses a text."""

_SPACE = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(rb'"((?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"')
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ESCAPE = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"  # a surrogate pair
    r"|\\u([0-9a-fA-F]{4})"
    r"|\\(.)"
)
_SHORT_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: dict[bytes, tuple[bytes, bool | None]] = {
    b"t": (b"true", True),
    b"f": (b"false", False),
    b"n": (b"null", None),
}


class NotJson(Exception):
    """The text is not JSON; the message is encoding/json's."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written: whether it fits is a matter of the field it goes to."""

    literal: str


@dataclass(slots=True)
class Object:
    """The members in the order written: encoding/json takes each in turn, so that the last of a name wins."""

    members: list[tuple[str, Value]] = field(default_factory=list)


Value = None | bool | str | Number | Object | list["Value"]


@dataclass(slots=True)
class _Open:
    """An array or object that is not closed yet; key: the name that the next value gets."""

    value: Object | list[Value]
    key: str = ""

    @property
    def end(self) -> bytes:
        return b"]" if isinstance(self.value, list) else b"}"

    @property
    def expectation(self) -> str:
        return "after array element" if isinstance(self.value, list) else "after object key:value pair"

    def add(self, value: Value) -> None:
        if isinstance(self.value, list):
            self.value.append(value)
        else:
            self.value.members.append((self.key, value))


class _Scanner:
    def __init__(self, text: bytes) -> None:
        self._text = text
        self._at = 0

    def token(self) -> bytes:
        """The next byte that is not white space; it is not consumed."""
        self._at = self._end_of(_SPACE)
        return self._byte(self._at)

    def skip(self) -> None:
        self._at += 1

    def key(self) -> str:
        """An object's next key and the colon behind it."""
        if self.token() != b'"':
            raise self.invalid("looking for beginning of object key string")
        key = self._string()
        if self.token() != b":":
            raise self.invalid("after object key")
        self.skip()
        return key

    def scalar(self) -> Value:
        """A string, number, true, false or null; the next byte is its first."""
        first = self.token()
        if first == b'"':
            return self._string()
        if first in _LITERALS:
            return self._literal(*_LITERALS[first])
        if first == b"-" or first.isdigit():
            return self._number()
        raise self.invalid("looking for beginning of value")

    def invalid(self, expectation: str, at: int | None = None) -> NotJson:
        character = self._byte(self._at if at is None else at).decode("latin-1")
        return NotJson(f"invalid character {_quoted(character)} {expectation}")

    def _byte(self, at: int) -> bytes:
        if at >= len(self._text):
            raise NotJson("unexpected EOF" if self._text.strip(b" \t\r\n") else "EOF")
        return self._text[at : at + 1]

    def _end_of(self, pattern: re.Pattern[bytes]) -> int:
        match = pattern.match(self._text, self._at)
        return match.end() if match else self._at

    def _literal(self, word: bytes, value: bool | None) -> bool | None:
        for offset in range(1, len(word)):
            if self._byte(self._at + offset) != word[offset : offset + 1]:
                wanted = f"in literal {word.decode()} (expecting {chr(word[offset])!r})"
                raise self.invalid(wanted, self._at + offset)
        self._at += len(word)
        return value

    def _number(self) -> Number:
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            raise self.invalid("in numeric literal", self._at + 1)
        end, (fraction, exponent) = match.end(), match.groups()
        rest = self._text[end : end + 1]
        if rest == b"." and not fraction and not exponent:
            raise self.invalid("after decimal point in numeric literal", end + 1)
        if rest in (b"e", b"E") and not exponent:
            signed = self._byte(end + 1) in (b"+", b"-")
            raise self.invalid("in exponent of numeric literal", end + 1 + signed)
        self._at = end
        return Number(match.group().decode())

    def _string(self) -> str:
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise self._broken_string()
        self._at = match.end()
        return _unquoted(match.group(1))

    def _broken_string(self) -> NotJson:
        at = self._at + 1
        while True:
            byte = self._byte(at)
            if byte < b" ":
                return self.invalid("in string literal", at)
            if byte == b"\\":
                at += 1
                if self._byte(at) not in b'"\\/bfnrtu':
                    return self.invalid("in string escape code", at)
                for digit in range(at + 1, at + 5) if self._byte(at) == b"u" else ():
                    if self._byte(digit) not in b"0123456789abcdefABCDEF":
                        return self.invalid("in \\u hexadecimal character escape", digit)
            at += 1


def read_value(text: bytes) -> Value:
    """The first JSON value in text. Raises NotJson. Nesting costs no stack."""
    scanner = _Scanner(text)
    outer: list[_Open] = []
    while True:
        first = scanner.token()
        value: Value
        if first in (b"{", b"["):
            opened = _Open([] if first == b"[" else Object())
            outer.append(opened)
            if len(outer) > MAX_DEPTH:
                raise scanner.invalid("exceeded max depth")
            scanner.skip()
            if scanner.token() != opened.end:
                if isinstance(opened.value, Object):
                    opened.key = scanner.key()
                continue
            scanner.skip()
            value = outer.pop().value
        else:
            value = scanner.scalar()
        while outer:
            opened = outer[-1]
            opened.add(value)
            mark = scanner.token()
            if mark not in (b",", opened.end):
                raise scanner.invalid(opened.expectation)
            scanner.skip()
            if mark == b",":
                if isinstance(opened.value, Object):
                    opened.key = scanner.key()
                break
            value = outer.pop().value
        else:
            return value


def _unquoted(raw: bytes) -> str:
    """A string's text: what is not UTF-8, and half a surrogate pair, becomes U+FFFD (decode.go, unquoteBytes)."""
    if b"\\" not in raw and raw.isascii():
        return raw.decode("ascii")
    text = re.sub("[\udc80-\udcff]", "\N{REPLACEMENT CHARACTER}", raw.decode("utf-8", "surrogateescape"))
    return _ESCAPE.sub(_unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    high, low, code, short = match.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + (int(low, 16) - 0xDC00))
    if code:
        return "\N{REPLACEMENT CHARACTER}" if 0xD800 <= int(code, 16) <= 0xDFFF else chr(int(code, 16))
    return _SHORT_ESCAPES.get(short, short)


_NAMED = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    "'": "\\'",
}


def _quoted(character: str) -> str:
    """One byte as Go quotes it in the messages above (scanner.go, quoteChar)."""
    code = ord(character)
    if character in _NAMED:
        return f"'{_NAMED[character]}'"
    if code < 0x20 or code == 0x7F:
        return f"'\\x{code:02x}'"
    if 0x80 <= code <= 0xA0 or code == 0xAD:
        return f"'\\u{code:04x}'"
    return f"'{character}'"
