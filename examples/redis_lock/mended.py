"""The same job, mended: the processor is told which charge this is, so that asking twice is not charging twice.

    pytest scenarios/ --harness-subject examples.redis_lock.mended:charge_invoice -k "slow_charge and before-commit"

Two things are new. The request carries an idempotency key made from the invoice: never a random one, which would be
another for every worker. And a 409 idempotency_key_in_use, which says that another worker's charge is under way, is
asked again until there is an answer. The lock is only what it can be: it saves work, the key saves money.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request

import redis
from redis.exceptions import LockNotOwnedError

from harness import Job

IN_USE = "idempotency_key_in_use"


def charge_invoice(job: Job) -> None:
    """One delivery from the queue: take the customer's lock, charge what is not paid yet, record it."""
    store = redis.Redis.from_url(job.redis_url)
    lease_s = job.lock_ttl_ms / 1000
    lock = store.lock(f"lock:{job.customer}", timeout=lease_s, sleep=lease_s / 12, blocking_timeout=8 * lease_s)
    if not lock.acquire():
        raise SystemExit(75)  # the queue delivers again
    try:
        if store.get(f"paid:{job.invoice}"):
            return
        charge = post_charge(job)
        store.set(f"paid:{job.invoice}", charge["id"])
    finally:
        try:
            lock.release()
        except LockNotOwnedError:
            pass  # the lease ran out meanwhile, which is what the key is for


def post_charge(job: Job) -> dict[str, str]:
    """Charges the invoice at the payment processor, or gets the answer to the charge that was made before."""
    body = {"customer": job.customer, "invoice": job.invoice, "amount": job.amount, "currency": job.currency}
    headers = {"Content-Type": "application/json", "Idempotency-Key": f"charge-{job.invoice}"}
    while True:
        request = urllib.request.Request(f"{job.processor_url}/v1/charges", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=20 * job.lock_ttl_ms / 1000) as answer:
                charge: dict[str, str] = json.load(answer)
                return charge
        except urllib.error.HTTPError as error:
            if error.code != 409 or json.load(error)["error"]["code"] != IN_USE:
                raise
            time.sleep(job.lock_ttl_ms / 12_000)
