"""asyncio: SET with a fence drawn in the same script, and a fenced read; its own HTTP over asyncio streams.

The token is Redis' time in microseconds, not a counter: it grows also when Redis has lost everything.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

import redis.asyncio

from harness.subject import ACQUIRE_TIMEOUT_LEASES, CHARGE_TIMEOUT_LEASES, Job, give_up

ACQUIRE = """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
local now = redis.call('TIME')
return now[1] * 1000000 + now[2]
"""
"""KEYS: lock. ARGV: owner, lease in ms. Returns the token, or 0 when the lock is taken."""
EXTEND = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0"
RELEASE = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"


class Stale(Exception):
    """The processor has seen a newer token."""


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def call(job: Job, method: str, path: str, token: int, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One request on a connection of its own. Raises Stale when the processor says so."""
    host = urlsplit(job.processor_url)
    data = b"" if body is None else json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(host.hostname, host.port)
    try:
        head = f"{method} {path} HTTP/1.1\r\nHost: {host.netloc}\r\nFencing-Token: {token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + data)
        async with asyncio.timeout(CHARGE_TIMEOUT_LEASES * job.lease_s):
            answer = await reader.read()
    finally:
        writer.close()
    status, _, rest = answer.partition(b"\r\n")
    if int(status.split()[1]) == 409:
        raise Stale
    parsed: dict[str, Any] = json.loads(rest.partition(b"\r\n\r\n")[2])
    return parsed


async def run(job: Job) -> None:
    store = redis.asyncio.Redis.from_url(job.redis_url, decode_responses=True)
    lock, owner = f"{{{job.customer}}}:lock", uuid.uuid4().hex
    gives_up_at = now() + ACQUIRE_TIMEOUT_LEASES * job.lease_s
    while True:
        valid_until = now() + job.lease_s
        if token := int(await store.eval(ACQUIRE, 1, lock, owner, job.lock_ttl_ms)):
            break
        if now() > gives_up_at:
            give_up("no lock in time")
        await asyncio.sleep(job.lease_s / 11)

    done = asyncio.Event()

    async def renew() -> None:
        """Ends by being told. A cancel that meets a command under way can get lost in the client."""
        nonlocal valid_until
        while not done.is_set():
            try:
                await asyncio.wait_for(done.wait(), job.lease_s / 4)
            except TimeoutError:
                asked_at = now()
                if await store.eval(EXTEND, 1, lock, owner, job.lock_ttl_ms):
                    valid_until = asked_at + job.lease_s

    renewing = asyncio.create_task(renew())
    try:
        query = f"/v1/charges?customer={job.customer}&invoice={job.invoice}"
        if (await call(job, "GET", query, token))["data"]:
            return
        if now() <= valid_until:
            body = {"customer": job.customer, "invoice": job.invoice, "amount": job.amount, "currency": job.currency}
            await call(job, "POST", "/v1/charges", token, body)
    except Stale:
        return
    finally:
        done.set()
        await asyncio.gather(renewing, return_exceptions=True)
        await store.eval(RELEASE, 1, lock, owner)
        await store.aclose()
