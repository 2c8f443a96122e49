"""The job as a worker is handed it, whose servers are its own links, and as --harness-setup gets it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.nodes import FIRST
from harness.subject import Job

if TYPE_CHECKING:
    from harness.bench import Bench

AMOUNT = 4_200
CURRENCY = "EUR"


def job(bench: Bench, worker: str, invoice: str | None = None) -> Job:
    """The job of a worker, whose links are open.

    invoice: another one of the same customer, where it is not the experiment's own.
    """
    database_url = None
    if bench.stack.postgres is not None:
        port = bench.link(worker, "postgres").port
        database_url = bench.stack.postgres.url(bench.database_name or bench.late_database, "127.0.0.1", port)
    redis_url = bench.redis.url("127.0.0.1", bench.link(worker, FIRST).port, bench.database)
    others = [n.redis.url("127.0.0.1", bench.link(worker, n.link).port, n.database) for n in bench.nodes]
    return Job(
        redis_url=redis_url,
        processor_url=f"http://127.0.0.1:{bench.link(worker, 'processor').port}",
        database_url=database_url,
        customer=bench.customer,
        invoice=invoice or bench.invoice,
        amount=AMOUNT,
        currency=CURRENCY,
        lock_ttl_ms=bench.spec.ttl_ms,
        worker=worker,
        redis_urls=(redis_url, *others) if others else (),
    )


def direct_job(bench: Bench) -> Job:
    """The job of A with the servers' own addresses, past every tap."""
    host, port = bench.redis.address
    payment = "{}:{}".format(*bench.stack.processor.payment["A"])
    postgres = bench.stack.postgres
    redis_url = bench.redis.url(host, port, bench.database)
    others = [node.redis.url(*node.redis.address, node.database) for node in bench.nodes]
    return replace(
        job(bench, "A"),
        redis_url=redis_url,
        redis_urls=(redis_url, *others) if others else (),
        processor_url=f"http://{payment}",
        database_url=None if postgres is None or bench.database_name is None else postgres.url(bench.database_name),
    )
