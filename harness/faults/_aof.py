"""Redis' append-only file, where the experiment's own server has it on this host."""

from __future__ import annotations

from pathlib import Path

from harness.stack import StackError

EVERYSEC: tuple[str, ...] = ("--appendonly", "yes", "--appendfsync", "everysec")


def incremental(directory: Path) -> Path:
    """The file that commands are appended to (Redis 7 and later: appendonlydir). Raises StackError."""
    found = list(directory.glob("appendonlydir/*.incr.aof"))
    if len(found) != 1:
        raise StackError(f"{directory} has {len(found)} append-only files, not one")
    return found[0]
