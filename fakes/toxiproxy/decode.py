"""JSON values into named, typed fields and back, as Go's encoding/json does it for Toxiproxy's structs.

Go decodes what fits, remembers the first value that does not, and goes on: so a request can be refused and leave half
of its changes behind. Callers get both, the values that fitted and the complaint.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from fakes.toxiproxy.syntax import Number, Object, Value

_FLOAT32_END = 3.4028235677973366e38  # what rounds to infinity from here on

Scalar = Literal["string", "bool", "int", "int64", "float32"]


@dataclass(frozen=True, slots=True)
class Struct:
    """A Go struct. go_type: its type in full; fields: by name on the wire; embedded: what some belong to."""

    go_type: str
    fields: Mapping[str, Scalar | Struct]
    name: str = ""
    embedded: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Decoded:
    """values: what fitted, structs as dicts; complaint: the first that did not fit, in Go's words."""

    values: dict[str, Any] = field(default_factory=dict)
    complaint: str | None = None


def decode(value: Value, wanted: Struct) -> Decoded:
    """Members are matched by name, else by name in any case; null and unknown members are passed over."""
    decoded = Decoded()
    _into(decoded, decoded.values, value, wanted, "", ())
    return decoded


def decode_list(value: Value, wanted: Struct) -> tuple[list[Decoded], str | None]:
    """A list of structs, and the first complaint about any of them."""
    if value is None:
        return [], None
    if not isinstance(value, list):
        return [], f"json: cannot unmarshal {_kind(value)} into Go value of type []{wanted.go_type}"
    items = [decode(item, wanted) for item in value]
    return items, next((item.complaint for item in items if item.complaint), None)


def _into(
    decoded: Decoded, target: dict[str, Any], value: Value, wanted: Struct, owner: str, path: tuple[str, ...]
) -> None:
    if value is None:
        return
    if not isinstance(value, Object):
        decoded.complaint = decoded.complaint or _mismatch(_kind(value), owner, path, wanted.go_type)
        return
    for key, member in value.members:
        name = key if key in wanted.fields else _folded(key, wanted)
        if name is None or member is None:
            continue
        kind = wanted.fields[name]
        inner = (*path, wanted.embedded[name], name) if name in wanted.embedded else (*path, name)
        if isinstance(kind, Struct):
            _into(decoded, target.setdefault(name, {}), member, kind, wanted.name, inner)
            continue
        try:
            target[name] = _scalar(member, kind)
        except ValueError as misfit:
            decoded.complaint = decoded.complaint or _mismatch(str(misfit), wanted.name, inner, kind)


def _mismatch(what: str, owner: str, path: tuple[str, ...], go_type: str) -> str:
    where = f"struct field {owner}.{'.'.join(path)} of type" if path else "value of type"
    return f"json: cannot unmarshal {what} into Go {where} {go_type}"


def _folded(key: str, wanted: Struct) -> str | None:
    folded = "".join(each.casefold() if len(each.casefold()) == 1 else each for each in key)
    return next((name for name in wanted.fields if name.lower() == folded), None)


def _kind(value: Value) -> str:
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case Number():
            return "number"
        case list():
            return "array"
    return "object"


def _scalar(value: Value, kind: Scalar) -> str | bool | int | float:
    """The value as the field's type. Raises ValueError with what it is instead."""
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "bool" and isinstance(value, bool):
        return value
    if isinstance(value, Number) and kind in ("int", "int64", "float32"):
        try:
            return _float32(float(value.literal)) if kind == "float32" else _int64(value.literal)
        except (ValueError, OverflowError):
            raise ValueError(f"number {value.literal}") from None
    raise ValueError(_kind(value))


def _int64(literal: str) -> int:
    number = int(literal)
    if not -(2**63) <= number < 2**63:
        raise OverflowError
    return number


def _float32(number: float) -> float:
    if math.isinf(number):
        raise OverflowError
    rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return rounded


def dumps(value: Any) -> str:
    """JSON as json.Marshal writes it: no spaces, and no character that would matter inside HTML."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        if character in text:
            text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def dumps_float32(number: float) -> str:
    """The shortest digits that give the same float32 back, as json.Marshal writes them."""
    # At most 9 significant digits tell any two float32 apart (IEEE 754); the largest must not be rounded past the end.
    texts = (f"{number:.{digits}e}" for digits in range(9))
    shortest = next(text for text in texts if abs(float(text)) < _FLOAT32_END and _float32(float(text)) == number)
    if number and not _float32(1e-6) <= abs(number) < _float32(1e21):
        return shortest.replace("e-0", "e-")
    return f"{Decimal(shortest):f}"
