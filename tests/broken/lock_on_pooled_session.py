"""pgbouncer#102, authentik#23876: a session advisory lock on a pooled connection, which is not the session's own.

The pool here ends what was idle for half a lease, and the lock with it; the work goes on, on another backend.
"""

from __future__ import annotations

import threading

from harness.subject import Job
from harness.variants.pg_advisory import TRY_LOCK, UNLOCK, bill, connect
from tests.broken.shop import poll


def run(job: Job) -> None:
    pooled = connect(job)
    poll(job, lambda: pooled.execute(TRY_LOCK, [job.customer]).fetchone() == (True,))
    reaper = threading.Timer(job.lease_s / 2, pooled.close)  # handed back to the pool
    reaper.daemon = True
    reaper.start()
    with connect(job) as work:
        bill(job, work)
    reaper.cancel()
    if not pooled.closed:
        pooled.execute(UNLOCK, [job.customer])
        pooled.close()
