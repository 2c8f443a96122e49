"""http.client, a new connection for each request and closed after it; the paid question goes to the processor.

The key protects the charge; the lock, a Redis hash with a field for the owner, only keeps workers from waiting in vain.
"""

from __future__ import annotations

import http.client
import json
import secrets
import time
from typing import Any
from urllib.parse import urlsplit

import redis

from harness.subject import ACQUIRE_TIMEOUT_LEASES, CHARGE_TIMEOUT_LEASES, EXIT_GAVE_UP, Job

TAKE = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'owner', ARGV[1])
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""
DROP = "if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then return redis.call('UNLINK', KEYS[1]) end return 0"


def call(job: Job, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(
        urlsplit(job.processor_url).netloc, timeout=CHARGE_TIMEOUT_LEASES * job.lease_s
    )
    headers = {"Connection": "close", "Content-Type": "application/json", "Idempotency-Key": f"bill:{job.invoice}"}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def run(job: Job) -> None:
    store, lock, owner = redis.Redis.from_url(job.redis_url), f"lock/{job.customer}", secrets.token_urlsafe()
    gives_up_at = time.monotonic() + ACQUIRE_TIMEOUT_LEASES * job.lease_s
    while not store.eval(TAKE, 1, lock, owner, job.lock_ttl_ms):
        if time.monotonic() > gives_up_at:
            raise SystemExit(EXIT_GAVE_UP)
        time.sleep(job.lease_s / 10)
    try:
        _, found = call(job, "GET", f"/v1/charges?customer={job.customer}&invoice={job.invoice}")
        if found["data"]:
            return
        body = {"customer": job.customer, "invoice": job.invoice, "amount": job.amount, "currency": job.currency}
        while True:
            status, answer = call(job, "POST", "/v1/charges", body)
            if answer.get("error", {}).get("code") != "idempotency_key_in_use":
                break
            time.sleep(job.lease_s / 20)
        if status >= 400:
            raise SystemExit(1)
    finally:
        store.eval(DROP, 1, lock, owner)
