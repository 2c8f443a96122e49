"""No lock, no Redis, no database: the processor's idempotency key is the whole protection."""

from __future__ import annotations

from harness.subject import Job, Processor


def run(job: Job) -> None:
    Processor(job).charge(idempotency_key=f"{job.customer}/{job.invoice}")
