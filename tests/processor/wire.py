"""Bytes to a server and bytes back, for what no HTTP client would send."""

from __future__ import annotations

import socket

from .bank import PATIENCE_S


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


def everything(port: int, request: bytes) -> bytes:
    """Sends bytes, says that no more will come, and returns all that comes back. Raises TimeoutError if that hangs."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as sock:
        answer = b""
        try:
            sock.sendall(request)
            sock.shutdown(socket.SHUT_WR)
            while chunk := sock.recv(65536):
                answer += chunk
        except (ConnectionResetError, BrokenPipeError):
            pass  # it had seen enough
        return answer
