"""slicer: what was sent together arrives in pieces."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from fakes.toxiproxy.stub import Chunk, Interrupted, Stub
from fakes.toxiproxy.toxics.toxic import Toxic, register


@register("slicer")
@dataclass(slots=True)
class Slicer(Toxic):
    """average_size: bytes of a piece, size_variation: give or take so many; delay: microseconds after each piece."""

    GO_NAME = "SlicerToxic"
    INTEGER = "int"

    average_size: int = 0
    size_variation: int = 0
    delay: int = 0

    async def pipe(self, stub: Stub) -> None:
        async for chunk in stub:
            for start, end in self._slices(len(chunk.data)):
                await stub.send(Chunk(chunk.data[start:end], chunk.at_s))
                try:
                    await stub.sleep(self.delay / 1e6)
                except Interrupted:
                    await stub.send(Chunk(chunk.data[end:], chunk.at_s))
                    raise
        stub.close()

    def _slices(self, size: int) -> Iterator[tuple[int, int]]:
        """Halves, give or take the variation, and halves again until the pieces are small enough: evenly mixed sizes.

        A piece of one byte is never cut, whatever the attributes ask for: the real server would recurse for ever.
        """
        todo = [(0, size)]
        while todo:
            start, end = todo.pop()
            if end - start <= max(1, self.average_size + self.size_variation):
                yield start, end
                continue
            middle = start + (end - start) // 2
            if self.size_variation > 0:
                middle += random.randrange(-self.size_variation, self.size_variation)
            middle = min(max(middle, start + 1), end - 1)
            todo += [(middle, end), (start, middle)]
