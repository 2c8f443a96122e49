"""Charges an invoice under redis-py's own Lock. It reads well, it passes review, and it charges customers twice.

    pytest scenarios/ --harness-subject examples.redis_lock.billing:charge_invoice -k "slow_charge and before-commit"

The lease runs out while the processor is slow. The next worker gets the lock, reads that nothing is paid, and charges.
The Lock notices at the end, when it is let go (LockNotOwnedError): the money is gone by then.
"""

from __future__ import annotations

import json
import urllib.request

import redis

from harness import Job


def charge_invoice(job: Job) -> None:
    """One delivery from the queue: take the customer's lock, charge what is not paid yet, record it."""
    store = redis.Redis.from_url(job.redis_url)
    lease_s = job.lock_ttl_ms / 1000
    with store.lock(f"lock:{job.customer}", timeout=lease_s, sleep=lease_s / 12, blocking_timeout=8 * lease_s):
        if store.get(f"paid:{job.invoice}"):
            return
        charge = post_charge(job)
        store.set(f"paid:{job.invoice}", charge["id"])


def post_charge(job: Job) -> dict[str, str]:
    """Charges the invoice at the payment processor and returns the charge."""
    body = {"customer": job.customer, "invoice": job.invoice, "amount": job.amount, "currency": job.currency}
    request = urllib.request.Request(
        f"{job.processor_url}/v1/charges", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20 * job.lock_ttl_ms / 1000) as answer:
        charge: dict[str, str] = json.load(answer)
    return charge
