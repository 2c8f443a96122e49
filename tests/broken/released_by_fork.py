"""filelock#634, sherlock 0.4.1: a forked child leaves the with-block when it exits, and releases its parent's lock."""

from __future__ import annotations

import os
import sys
import time

from harness.subject import Job
from tests.broken.shop import bill, locked


def run(job: Job) -> None:
    with locked(job) as lock:
        if os.fork() == 0:
            time.sleep(job.lease_s / 2)  # prints the receipt, say
            sys.exit(0)
        bill(job, lock.store, check=lock.watchdog.check)
