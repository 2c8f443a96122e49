"""What a toxic is, the register of them, and one toxic as it is set on a proxy."""

from __future__ import annotations

import abc
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal, TypeVar

from fakes.toxiproxy.decode import Scalar, Struct, dumps, dumps_float32
from fakes.toxiproxy.stub import Stub

Stream = Literal["upstream", "downstream"]

STREAMS: tuple[Stream, ...] = ("upstream", "downstream")


class Toxic(abc.ABC):
    """A dataclass whose fields are the attributes on the wire; one object serves every connection of a proxy.

    An update writes to the fields while connections run: they are read when they are needed, never copied.
    """

    GO_NAME: ClassVar[str]
    """The type's name in Toxiproxy's complaints."""
    INTEGER: ClassVar[Scalar] = "int64"
    """The type of the attributes in Toxiproxy's complaints."""
    BUFFER_CHUNKS: ClassVar[int] = 0
    """Chunks that may queue up before this toxic while it holds one."""
    CLOSES_WHEN_REMOVED: ClassVar[bool] = False
    RESETS: ClassVar[bool] = False
    """Whether connections opened under this toxic end with RST instead of FIN."""

    @abc.abstractmethod
    async def pipe(self, stub: Stub) -> None:
        """Passes chunks on until the stream ends, then calls stub.close(); lets Interrupted out when it is raised."""

    @classmethod
    def wanted(cls) -> Struct:
        """The attributes as encoding/json sees them."""
        names = getattr(cls, "__dataclass_fields__", {})
        return Struct(f"toxics.{cls.GO_NAME}", dict.fromkeys(names, cls.INTEGER), cls.GO_NAME)

    def update(self, attributes: dict[str, int]) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)

    def to_json(self) -> str:
        return dumps(asdict(self))  # type: ignore[call-overload]


_ToxicClass = TypeVar("_ToxicClass", bound=type[Toxic])

REGISTER: dict[str, type[Toxic]] = {}


def register(name: str) -> Callable[[_ToxicClass], _ToxicClass]:
    """Makes a toxic available under its type on the wire."""

    def keep(toxic: _ToxicClass) -> _ToxicClass:
        REGISTER[name] = toxic
        return toxic

    return keep


def milliseconds(count: int) -> float:
    """Seconds. Go counts nanoseconds in 64 bits: more than 292 years turn into a time long past, that is, no wait."""
    return ((count * 1_000_000 + 2**63) % 2**64 - 2**63) / 1e9


@dataclass(slots=True, eq=False)
class Setting:
    """A toxic as it is set on a proxy. stream: the direction; stream_given: as the client spelled it."""

    toxic: Toxic
    name: str
    type: str
    stream: Stream
    stream_given: str
    toxicity: float

    def roll(self, otherwise: Toxic) -> Toxic:
        """The dice for one connection: this toxic, or the other one. Rolled when a connection meets the toxic."""
        return self.toxic if random.random() < self.toxicity else otherwise

    def to_json(self) -> str:
        return (
            f'{{"attributes":{self.toxic.to_json()},"name":{dumps(self.name)},"type":{dumps(self.type)},'
            f'"stream":{dumps(self.stream_given)},"toxicity":{dumps_float32(self.toxicity)}}}'
        )
