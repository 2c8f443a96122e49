"""A job that looks at its connection to Redis before it writes: one that was reset is not written to any more."""

from __future__ import annotations

import contextlib
import socket
import urllib.parse

from harness.subject import Job, Processor, poll


def run(job: Job) -> None:
    """Charges once, by its key; a connection that has ended is the end of the job."""
    url = urllib.parse.urlsplit(job.redis_url)
    with socket.create_connection((url.hostname or "", url.port or 0)) as redis:

        def ask(*words: object) -> bytes:
            said = [str(word).encode() for word in words]
            redis.sendall(b"*%d\r\n" % len(said) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in said))
            return redis.recv(4096)

        ask("SELECT", url.path.strip("/"))
        poll(job, lambda: ask("SET", f"lock:{job.customer}", job.worker, "NX", "PX", job.lock_ttl_ms) == b"+OK\r\n")
        if ask("GET", f"paid:{job.invoice}") == b"$-1\r\n":
            Processor(job).charge(idempotency_key=job.invoice)
            redis.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                if redis.recv(1) == b"":  # and raises ConnectionResetError after a reset
                    raise ConnectionAbortedError("Redis has closed the connection")
            redis.setblocking(True)
            ask("SET", f"paid:{job.invoice}", "1")
        ask("DEL", f"lock:{job.customer}")
