"""CPU time of the harness and of everything it has started, from /proc/PID/stat (proc(5))."""

from __future__ import annotations

import os
from pathlib import Path

from harness import kernel

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_ms(*roots: int) -> float:
    """User and system time of these process trees so far, reaped children included, in milliseconds."""
    return sum(_ticks(pid) for root in roots for pid in kernel.tree(root)) * 1000 / _TICKS_PER_S


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0
    return sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime
