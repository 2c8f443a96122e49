"""The wire between the harness and the processes that start others for it (keeper and zygote).

A stream of JSON lines over a Unix socket; file descriptors travel beside them (SCM_RIGHTS), in order.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from harness import kernel

Message = dict[str, Any]
_MAX_FDS = 16


class Channel:
    """One end of the wire, blocking."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.fds: deque[int] = deque()
        self._buffer = bytearray()

    def send(self, message: Message) -> None:
        self.sock.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[Message] | None:
        """What has arrived (perhaps nothing whole); None when the other end is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self.sock, 1 << 16, _MAX_FDS)
        except ConnectionError:
            return None
        self.fds.extend(fds)
        if not data:
            return None
        self._buffer += data
        return list(self._lines())

    def _lines(self) -> Iterator[Message]:
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            yield json.loads(line)


def encode(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


def serve(channel: Channel, start: Callable[[Message, Channel], int]) -> None:
    """Starts processes on request and reports their ends, until the other side is gone or SIGTERM comes.

    start returns the new pid or raises OSError; the answer carries either. Every child is reaped, also orphans that
    came to this process. Of these nothing is told: nobody asked for them, and a process that is started later may get
    the pid of one.
    """
    started: set[int] = set()
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    selector = selectors.DefaultSelector()
    selector.register(channel.sock, selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    while not stopping:
        ready = {key.fileobj for key, _ in selector.select()}
        if wake_read in ready:
            try:
                while os.read(wake_read, 512):
                    pass
            except BlockingIOError:
                pass
        if channel.sock in ready:
            messages = channel.receive()
            if messages is None:
                return
            for message in messages:
                try:
                    pid = start(message, channel)
                    started.add(pid)
                    answer: Message = {"id": message["id"], "pid": pid}
                except OSError as error:
                    answer = {"id": message["id"], "error": f"{type(error).__name__}: {error}"}
                channel.send(answer)
        try:
            for exit_report in reap():
                if exit_report["exit"] in started:
                    started.remove(exit_report["exit"])
                    channel.send(exit_report)
        except ConnectionError:
            return


def reap() -> Iterator[Message]:
    """Reaps every child that has ended; its waiting time for a CPU is read before."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None:
            return
        delay_ns = kernel.run_delay_ns(ended.si_pid)
        _, status = os.waitpid(ended.si_pid, 0)
        yield {"exit": ended.si_pid, "status": os.waitstatus_to_exitcode(status), "run_delay_ns": delay_ns}
