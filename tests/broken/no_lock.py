"""celery#5935, #3270: the visibility timeout is shorter than the job: it is delivered again, and nothing is locked."""

from __future__ import annotations

from harness.subject import Job
from tests.broken.shop import bill, connect


def run(job: Job) -> None:
    bill(job, connect(job))
