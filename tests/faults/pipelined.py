"""A worker that sends several commands at once and reads no answer for a while: a greeting on a busy machine."""

from __future__ import annotations

import socket
import time
from urllib.parse import urlsplit

from harness.subject import Job
from harness.variants.idempotency_key import run as charge_once


def run(job: Job) -> None:
    """idempotency-key's job, after a greeting whose first answers are still unread when the last one comes."""
    address = urlsplit(job.redis_url)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(b"*1\r\n$4\r\nPING\r\n" * 3)
        time.sleep(0.2 * job.lease_s)
        answers = b""
        while answers.count(b"\r\n") < 3:
            answers += connection.recv(100)
    charge_once(job)
