"""Everything a run has on this machine, found by a variable in its environment that all its processes inherit.

Other runs may be under way at the same time: only what carries the mark, or was seen with it, is counted.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from harness import kernel

_VARIABLE = "LOCKPROOF_TEST_MARK"
_RUN_DIRECTORY = re.compile(rb"(/[\w./-]*?/lockproof-(?!cache|ci\b)[^/\0,\s]+)")
_TCP_LISTEN = "0A"


@dataclass
class Traces:
    """One run's traces: look() as often as possible while it lives, left() when it is over."""

    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    pids: dict[int, str] = field(default_factory=dict)
    """Every process seen so far, with the moment it was started: a pid may be used again."""
    names: dict[int, str] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    listening: set[str] = field(default_factory=set)
    """Inodes of sockets that listened."""
    _foreign: dict[int, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        return {_VARIABLE: self.mark}

    def look(self, root: int | None = None) -> list[int]:
        """The run's processes of this moment: those with the mark, and with root, its whole tree."""
        wanted = f"{_VARIABLE}={self.mark}".encode()
        found = []
        family = set(kernel.tree(root)) if root is not None else set()
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            started = _started(pid)
            if started is None or self._foreign.get(pid) == started:
                continue
            if self.pids.get(pid) == started or pid in family or wanted in _read(pid, "environ"):
                found.append(pid)
                self._note(pid, started)
            elif _settled(pid):
                self._foreign[pid] = started
        return found

    def _note(self, pid: int, started: str) -> None:
        self.pids[pid] = started
        command = _read(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace").strip()
        if command:
            self.names[pid] = command[:120]
            self.directories |= {match.decode() for match in _RUN_DIRECTORY.findall(command.encode())}

    def look_at_sockets(self) -> None:
        """Notes which sockets of the run's processes listen now."""
        listening = _listening()
        for pid in self.pids:
            try:
                links = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]
            except OSError:
                continue
            self.listening |= listening & {link.removeprefix("socket:[").removesuffix("]") for link in links}

    def frozen(self) -> list[int]:
        """The run's processes that are stopped."""
        return [pid for pid in self.look() if "T" in kernel.thread_states(pid).values()]

    def left(self) -> list[str]:
        """What is left of the run, told one by one. Empty: nothing."""
        told = []
        for pid in self.look():
            states = "".join(sorted(set(kernel.thread_states(pid).values())))
            if states not in ("", "Z"):
                told.append(f"process {pid} ({states}): {self.names.get(pid)}")
        told += [f"directory {name}" for name in sorted(self.directories) if Path(name).exists()]
        told += [f"listening socket {inode}" for inode in sorted(self.listening & _listening())]
        with open("/proc/net/unix") as file:
            names = [line.split()[-1] for line in file]
        told += [f"socket {name}" for name in names if any(name.startswith(f"@lockproof-{pid}-") for pid in self.pids)]
        with open("/proc/sysvipc/shm") as file:
            creators = [int(line.split()[4]) for line in file.readlines()[1:]]
        told += [f"SysV shared memory of process {pid}" for pid in creators if pid in self.pids]
        return told


def _started(pid: int) -> str | None:
    """When a process was started, in the kernel's ticks (proc(5), stat, field 22); None when it is gone."""
    stat = _read(pid, "stat")
    return stat[stat.rindex(b")") + 2 :].split()[19].decode() if b")" in stat else None


def _settled(pid: int) -> bool:
    """Whether its environment can be read for good: between fork and exec it may yet change, or be empty."""
    return bool(_read(pid, "environ")) or not _read(pid, "cmdline")


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _listening() -> set[str]:
    rows = []
    for name in ("tcp", "tcp6"):
        try:
            rows += [line.split() for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
        except OSError:
            continue
    return {row[9] for row in rows if row[3] == _TCP_LISTEN}
