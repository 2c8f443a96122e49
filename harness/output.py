"""What a worker prints: its log, and among it the events that it tells."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable

_OUTPUT_LIMIT = 256 * 1024
"""How much of a worker's output is kept, in bytes: its beginning and its end."""


class Output:
    """A worker's stdout and stderr, read as it comes: JSON events to a callback, everything to the log."""

    def __init__(self, on_event: Callable[[dict[str, object]], None]) -> None:
        self.read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.write_fd, True)
        self._on_event = on_event
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = 0
        self._line = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.read_fd, self.drain)

    def started(self) -> None:
        """The writing end belongs to the worker alone from now on."""
        os.close(self.write_fd)
        self.write_fd = -1

    def drain(self) -> None:
        """Takes what is there."""
        while True:
            try:
                data = os.read(self.read_fd, 1 << 16)
            except (BlockingIOError, OSError):
                return
            if not data:
                self._loop.remove_reader(self.read_fd)
                return
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        room = _OUTPUT_LIMIT // 2 - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room < len(data) else b""
        if (over := len(self._tail) - _OUTPUT_LIMIT // 2) > 0:
            self._cut += over
            del self._tail[:over]
        self._line += data
        *lines, rest = self._line.split(b"\n")
        self._line = rest[-_OUTPUT_LIMIT:]
        for line in lines:
            if line.lstrip().startswith(b"{"):
                try:
                    said = json.loads(line)
                except ValueError:
                    continue
                if isinstance(said, dict) and isinstance(said.get("event"), str):
                    self._on_event(said)

    def close(self) -> str:
        """Ends the reading and returns the log."""
        self.drain()
        self._loop.remove_reader(self.read_fd)
        os.close(self.read_fd)
        if self.write_fd >= 0:
            os.close(self.write_fd)
        middle = f"\n[... {self._cut} bytes left out ...]\n".encode() if self._cut else b""
        return (bytes(self._head) + middle + bytes(self._tail)).decode("utf-8", "replace")
