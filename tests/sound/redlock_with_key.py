"""Redlock on three nodes for order (every one is asked, a majority counts), a key made from the invoice for safety.

Asked for with --harness-redis-nodes 3. A node that is down, silent or empty is one of three.
"""

from __future__ import annotations

import secrets
import time

import redis

from harness.subject import Job, Processor, poll

RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


def run(job: Job) -> None:
    nodes = [redis.Redis.from_url(url, socket_timeout=job.lease_s / 5) for url in job.redis_urls]
    name, owner = f"redlock:{job.customer}", secrets.token_hex(16)

    def release() -> None:
        for node in nodes:
            try:
                node.eval(RELEASE, 1, name, owner)
            except redis.RedisError:
                pass  # it runs out there

    def acquire() -> bool:
        began, granted = time.monotonic(), 0
        for node in nodes:
            try:
                granted += bool(node.set(name, owner, nx=True, px=job.lock_ttl_ms))
            except redis.RedisError:
                pass
        if granted > len(nodes) // 2 and time.monotonic() - began < job.lease_s:
            return True
        release()
        return False

    poll(job, acquire)
    try:
        if not nodes[0].get(f"paid:{job.invoice}"):
            charge = Processor(job).charge(idempotency_key=f"charge-{job.invoice}")
            nodes[0].set(f"paid:{job.invoice}", charge["id"])
    finally:
        release()
