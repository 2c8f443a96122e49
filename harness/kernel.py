"""What the kernel says about processes and sockets: the witness that neither a worker nor the harness can fool.

Linux only: /proc (proc(5)), prctl(2), TCP_INFO (tcp(7)).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc_prctl: Callable[..., int] = ctypes.CDLL(None, use_errno=True).prctl

_STOPPED = frozenset("tT")
_GONE = frozenset("ZX")
_TCP_INFO_BYTES_ACKED = 120
_TCP_INFO_SIZE = 136
_TCP_ESTABLISHED = "01"
_TCP_LISTEN = "0A"


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent dies, so that none can escape its tree."""
    _libc_prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent dies. Must be called after a change of user."""
    _libc_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def children(pid: int) -> list[int]:
    """The children of a process, of all its threads. Empty when it is gone."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
        except OSError:
            continue
    return found


def tree(pid: int) -> list[int]:
    """A process and all its descendants, parents first."""
    found = [pid]
    for member in found:
        found.extend(child for child in children(member) if child not in found)
    return found


def thread_states(pid: int) -> dict[int, str]:
    """The state letter of every thread of a process (proc(5): R, S, D, T, Z, ...). Empty when it is gone."""
    states: dict[int, str] = {}
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return states
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                stat = file.read()
        except OSError:
            continue
        states[int(thread)] = chr(stat[stat.rindex(b")") + 2])
    return states


def all_stopped(pids: list[int]) -> bool:
    """True when every thread of every process is stopped, or dead."""
    return all(state in _STOPPED or state in _GONE for pid in pids for state in thread_states(pid).values())


def is_stopped(pid: int) -> bool:
    """True while the first thread of a process is stopped."""
    return thread_states(pid).get(pid) in _STOPPED


def all_gone(pids: list[int]) -> bool:
    """True when every process has ended (a zombie that its parent has not reaped yet has ended)."""
    return all(state in _GONE for pid in pids for state in thread_states(pid).values())


def run_delay_ns(pid: int) -> int | None:
    """How long a thread has waited for a CPU since it started, in nanoseconds; None when it is gone.

    Of a process: its first thread, and no other. A kernel now and then counts a sleep among it (Linux 6.18, 2 CPUs
    beside 4 busy loops: 2 of 8,000 sleeps of 0.5 s, whose thread woke up within 0.1 ms): never too little, so that an
    experiment is run again for nothing.
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None


def run_delays_ns(pids: list[int]) -> dict[int, int]:
    """How long each thread of these processes has waited for a CPU since it started, in nanoseconds."""
    return {
        thread: delay_ns
        for pid in pids
        for thread in thread_states(pid)
        if (delay_ns := run_delay_ns(thread)) is not None
    }


def ran_ns(pids: list[int]) -> int:
    """How long all threads of these processes have run on a CPU so far, in nanoseconds: stands still while they do.

    0 where the kernel does not count it (Documentation/scheduler/sched-stats.rst: /proc/<pid>/schedstat).
    """
    total = 0
    for pid in pids:
        for thread in thread_states(pid):
            try:
                total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
            except (OSError, IndexError, ValueError):
                continue
    return total


def runnable() -> int:
    """How many threads of the machine run, or wait for a CPU, at this moment (proc(5): /proc/loadavg)."""
    with open("/proc/loadavg", "rb") as file:
        return int(file.read().split()[3].partition(b"/")[0])


def send_signal(pids: list[int], number: int) -> None:
    """Signals each process that still is there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def listens(pid: int, port: int) -> bool:
    """Whether it is this very process that listens on a TCP port over IPv4 (proc(5): /proc/net/tcp, /proc/PID/fd)."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    inodes = {
        f"socket:[{row[9]}]" for row in rows if row[3] == _TCP_LISTEN and int(row[1].partition(":")[2], 16) == port
    }
    try:
        return any(os.readlink(entry.path) in inodes for entry in os.scandir(f"/proc/{pid}/fd"))
    except OSError:
        return False


def connections_to(port: int) -> int:
    """How many TCP connections to a port of this host's stand, by their clients' side (proc(5): /proc/net/tcp)."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return sum(row[3] == _TCP_ESTABLISHED and int(row[2].partition(":")[2], 16) == port for row in rows)


def tcp_bytes(sock: socket.socket) -> tuple[int, int]:
    """(bytes that the peer's kernel has acknowledged, bytes received from the peer) on one TCP connection.

    The first counts the SYN as one byte (RFC 793) on the side that opened the connection, and not on the other.
    """
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
    if len(info) < _TCP_INFO_SIZE:
        return 0, 0
    acked, received = struct.unpack_from("=QQ", info, _TCP_INFO_BYTES_ACKED)
    return int(acked), int(received)
