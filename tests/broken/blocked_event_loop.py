"""bull#308, #1416; bullmq#3056: the event loop is blocked by the work, so the renewal that shares it comes too late.

A command: python tests/broken/blocked_event_loop.py
"""

from __future__ import annotations

import asyncio
import secrets

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from harness.subject import ACQUIRE_TIMEOUT_LEASES, Job, Processor, give_up
from harness.variants.naive_ttl import RELEASE
from harness.variants.watchdog import EXTEND


async def main(job: Job) -> None:
    store = redis.asyncio.Redis.from_url(job.redis_url, retry=Retry(NoBackoff(), 0), decode_responses=True)
    lock, owner, paid = f"lock:{job.customer}", secrets.token_hex(16), f"paid:{job.invoice}"
    async with asyncio.timeout(ACQUIRE_TIMEOUT_LEASES * job.lease_s):
        while not await store.set(lock, owner, nx=True, px=job.lock_ttl_ms):
            await asyncio.sleep(job.lease_s / 12)

    async def renew() -> None:
        while True:
            await asyncio.sleep(job.lease_s / 3)
            await store.eval(EXTEND, 1, lock, owner, job.lock_ttl_ms)

    renewing = asyncio.create_task(renew())
    try:
        if not await store.get(paid):
            charge = Processor(job).charge()  # a blocking client in a coroutine
            await store.set(paid, charge["id"])
    finally:
        renewing.cancel()
        await store.eval(RELEASE, 1, lock, owner)
        await store.aclose()


if __name__ == "__main__":
    try:
        asyncio.run(main(Job.from_env()))
    except TimeoutError:
        give_up("no lock in time")
