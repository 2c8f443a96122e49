"""watchdog: a thread renews the lease while the job runs, and the job looks at its own deadline before it charges.

Guarantees: the lock is held for as long as the process runs and reaches Redis, however slow the processor is. It does
not help a process that is itself stopped, killed or cut off from Redis once the charge is on its way.
"""

from __future__ import annotations

import secrets
import threading
import time

import redis

from harness.subject import Job, Processor, Refused, poll, say
from harness.variants.naive_ttl import RELEASE, connect

EXTEND = """
if redis.call("GET", KEYS[1]) == ARGV[1] then
    return redis.call("PEXPIRE", KEYS[1], ARGV[2])
end
return 0
"""
"""KEYS: lock. ARGV: owner, lease in ms. Returns 1 when the lease was ours and is extended, 0 when it is gone."""

RENEWALS_PER_LEASE = 3


class LeaseLost(Exception):
    """The lease ran out, or may have: the job must not charge."""


def clock() -> float:
    """Seconds on a clock that also runs while the process, or the machine, is stopped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Watchdog:
    """Renews a lease every third of it. asked_at: clock() before the lock was asked for."""

    def __init__(self, store: redis.Redis, lock: str, owner: str, lease_ms: int, asked_at: float) -> None:
        self._store = store
        self._lock = lock
        self._owner = owner
        self._lease_ms = lease_ms
        self._deadline = asked_at + lease_ms / 1000
        self._gone = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()

    def _renew(self) -> None:
        while not self._stop.wait(self._lease_ms / 1000 / RENEWALS_PER_LEASE):
            asked_at = clock()
            try:
                extended = self._store.eval(EXTEND, 1, self._lock, self._owner, self._lease_ms)
            except redis.RedisError:
                continue  # one lost renewal is no lost lease: the next third asks again, the deadline decides
            if not extended:
                self._gone = True
                return
            self._deadline = asked_at + self._lease_ms / 1000

    def check(self) -> None:
        """Raises LeaseLost when a renewal said so, or when our own deadline has passed."""
        if self._gone or clock() >= self._deadline:
            raise LeaseLost

    def stop(self) -> None:
        """Ends the renewals; returns when none is under way, so that the lock can be let go."""
        self._stop.set()
        self._thread.join()


def run(job: Job) -> None:
    """Charges the invoice under a lock that is renewed."""
    store = connect(job)
    lock, owner, paid = f"lock:{job.customer}", secrets.token_hex(16), f"paid:{job.invoice}"

    def acquire() -> float | None:
        asked_at = clock()
        return asked_at if store.set(lock, owner, nx=True, px=job.lock_ttl_ms) else None

    watchdog = Watchdog(store, lock, owner, job.lock_ttl_ms, poll(job, acquire) or 0)
    say("acquired", owner=owner)
    try:
        if store.get(paid):
            say("already-paid")
            return
        watchdog.check()
        charge = Processor(job).charge()
        store.set(paid, charge["id"])
    except Refused as refused:
        say("refused", code=refused.code)
    finally:
        watchdog.stop()
        store.eval(RELEASE, 1, lock, owner)
