"""Bytes to a server and bytes back, for what no HTTP client would send."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Callable

PATIENCE_S = 10.0
"""How long a test waits for what must happen; only a failing test ever waits that long."""


def exchange(target: int | socket.socket, request: bytes) -> tuple[int, bytes]:
    """Sends bytes to a port of this machine (or on a connection) and reads one response: its status and its body."""
    if isinstance(target, int):
        with socket.create_connection(("127.0.0.1", target), PATIENCE_S) as sock:
            return exchange(sock, request)
    target.sendall(request)
    with target.makefile("rb") as stream:
        status = int(stream.readline().split()[1])
        length = 0
        while (line := stream.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return status, stream.read(length)


def replies(port: int, request: bytes, settled: Callable[[], object]) -> list[int]:
    """Sends bytes, lets the server come to rest, says that no more will come; the statuses of what came back.

    settled puts a question to the same server on another connection: it has one loop, so once that is answered these
    bytes have been dealt with. Raises TimeoutError when it neither answers nor closes the connection.
    """
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as sock:
        answer = b""
        try:
            sock.sendall(request)
            settled()
            sock.shutdown(socket.SHUT_WR)
            while chunk := sock.recv(65536):
                answer += chunk
        except (ConnectionError, OSError) as error:
            if not isinstance(error, ConnectionError) and error.errno != errno.ENOTCONN:
                raise  # TimeoutError too
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]
