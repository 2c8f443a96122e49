"""The built-in subjects, one billing job a file: module naive_ttl is the variant naive-ttl, its entry is run(job)."""

from __future__ import annotations

VARIANTS = {
    name: f"{__name__}.{name.replace('-', '_')}"
    for name in (
        "naive-ttl",
        "long-ttl",
        "watchdog",
        "fencing",
        "watchdog-fencing",
        "fenced-read",
        "idempotency-key",
        "reserve-confirm",
        "reserve-confirm-naive",
        "pg-advisory",
        "pg-advisory-xact",
    )
}
"""name -> module, in the order of every table."""

SCENARIO_ONLY = {
    name: f"{__name__}.{name.replace('-', '_')}"
    for name in ("retry-no-key", "retry-fresh-key", "retry-invoice-key", "redis-py-lock")
}
"""name -> module of subjects that one scenario alone tries (it names them): how a worker retries, for instance."""

NEED_POSTGRES = frozenset(("reserve-confirm", "pg-advisory", "pg-advisory-xact"))
"""Variants that cannot be tried where the stack has no PostgreSQL."""

LEASE_FACTORS = {"long-ttl": 4.0}
"""Variants whose lease is longer than LOCK_TTL_MS by design."""
