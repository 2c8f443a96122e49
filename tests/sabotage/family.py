"""Billing jobs that leave the charge to a process of their own."""

from __future__ import annotations

import ctypes
import os
import time

from harness.subject import Job, Processor, poll
from harness.variants import idempotency_key
from harness.variants.naive_ttl import RELEASE, connect

PR_SET_CHILD_SUBREAPER = 36


def charge_invoice(job: Job) -> None:
    """The charge is made by a child in a session of its own, while its parent waits."""
    child = os.fork()
    if child == 0:
        os.setsid()
        try:
            idempotency_key.run(job)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def escape(job: Job) -> None:
    """The charge is made half a lease later by a process that no tree and no group of its parent's contains."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)  # orphans are no more this process's
    read, write = os.pipe()
    go, told = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            os.close(read)
            os.close(told)
            os.read(go, 1)
            time.sleep(job.lease_s / 2)
            try:
                charge = Processor(job).charge(idempotency_key=f"charge-{job.invoice}")
                connect(job).set(f"paid:{job.invoice}", charge["id"])
            finally:
                os._exit(0)
        os._exit(0)
    os.wait()
    os.close(write)
    store = connect(job)
    poll(job, lambda: store.set(f"lock:{job.customer}", job.worker, nx=True, px=job.lock_ttl_ms))
    os.write(told, b"!")
    store.get(f"paid:{job.invoice}")
    os.read(read, 1)
    store.eval(RELEASE, 1, f"lock:{job.customer}", job.worker)
