"""A worker that is more than one process and more than one thread: what stops or kills it has to get all of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.synchronize import Event

from harness.subject import Job
from harness.variants.idempotency_key import run as charge_once


def run(job: Job) -> None:
    """idempotency-key's job, beside a thread and a child that have nothing to do but to live."""
    over = threading.Event()
    threading.Thread(target=over.wait, daemon=True).start()
    up = multiprocessing.get_context("fork").Event()
    child = os.fork()
    if child == 0:
        _live(up)
    up.wait()
    try:
        charge_once(job)
    finally:
        over.set()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _live(up: Event) -> None:
    up.set()
    while True:
        signal.pause()
