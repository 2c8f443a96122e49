"""spotahome/redis-operator#77: a full restart without persistence, and the fencing counter starts again from 0.

The lock asks the processor what is paid, with its token; the same token comes twice, and equal is accepted.
"""

from __future__ import annotations

from typing import Any

import redis

from harness.subject import Job, Processor, Refused, say
from harness.variants.fencing import ACQUIRE
from tests.broken.shop import locked


def run(job: Job) -> None:
    def acquire(store: redis.Redis, lock: str, owner: str, lease_ms: int) -> Any:
        return store.eval(ACQUIRE, 2, lock, f"fence:{job.customer}", owner, lease_ms)

    processor = Processor(job)
    with locked(job, acquire=acquire) as lock:
        token = int(lock.granted)
        try:
            if not processor.charges(token=token):
                lock.watchdog.check()
                processor.charge(token=token)
        except Refused as refused:
            say("refused", code=refused.code)
