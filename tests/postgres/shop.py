"""One invoice of one customer, and workers that bill it: real processes, Redis, PostgreSQL and processor."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import redis
import tenacity
import urllib3
from redis.backoff import NoBackoff
from redis.retry import Retry

from harness.stack import free_port
from harness.stack.postgres import Postgres
from harness.stack.redis import find_server
from harness.subject import Job

PATIENCE_S = 15.0
"""How long a test waits for what must happen; only a failing test ever waits that long."""
LEASE_MS = 160
EIGHT_LEASES_OF_A_SHORT_ONE_MS = 60

T = TypeVar("T")
_numbers = itertools.count(1)


def until(true: Callable[[], T]) -> T:
    """Waits for something true, and returns it."""
    return tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda got: not got),
        wait=tenacity.wait_fixed(0.01),
        stop=tenacity.stop_after_delay(PATIENCE_S),
    )(true)


@dataclass
class Servers:
    redis_port: int
    payment: dict[str, str]
    control: str
    postgres: Postgres
    runner: asyncio.Runner


@contextmanager
def serve(directory: Path, postgres: Postgres, runner: asyncio.Runner) -> Iterator[Servers]:
    port = free_port()
    redis_argv = [str(find_server()), "--port", str(port), "--save", "", "--bind", "127.0.0.1", "--databases", "99"]
    processor_argv = [sys.executable, "-m", "fakes.processor", "--ledger", str(directory / "ledger.sqlite")]
    for who in "ABC":
        processor_argv += ["--payment", f"{who}=127.0.0.1:0"]
    processor_argv += ["--control", "127.0.0.1:0"]
    with (
        subprocess.Popen(redis_argv, stdout=subprocess.DEVNULL, cwd=directory) as store,
        subprocess.Popen(processor_argv, stdout=subprocess.PIPE) as processor,
    ):
        try:
            assert processor.stdout is not None
            ready = json.loads(processor.stdout.readline())
            client = redis.Redis(port=port, retry=Retry(NoBackoff(), 0))
            until(lambda: _answers(client))
            client.close()
            yield Servers(port, ready["payment"], ready["control"], postgres, runner)
        finally:
            store.kill()
            processor.kill()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def _work(variant: str, job: Job, output: int) -> None:
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = sys.stderr = os.fdopen(1, "w", closefd=False)
    importlib.import_module(f"harness.variants.{variant}").run(job)


class Worker:
    """One delivery in a process of its own, forked from this one, which has imported everything already."""

    def __init__(self, variant: str, job: Job) -> None:
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open until the worker is forgotten
        target = (variant, job, self._output.fileno())
        self.process = multiprocessing.get_context("fork").Process(target=_work, args=target)
        self.process.start()

    def end(self) -> tuple[int, list[dict[str, Any]]]:
        """Its exit status and what it said."""
        self.process.join(PATIENCE_S)
        assert self.process.exitcode is not None, "the worker does not end"
        self._output.seek(0)
        said = [json.loads(line) for line in self._output.read().splitlines() if line.startswith("{")]
        return self.process.exitcode, said

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def crash(self) -> None:
        self.process.kill()
        self.process.join(PATIENCE_S)


@dataclass
class Invoice:
    """An invoice nobody else has, and a database of its own; port: where workers reach that, if not directly."""

    servers: Servers
    variant: str
    database: str
    lease_ms: int = LEASE_MS
    port: int | None = None
    number: int = field(default_factory=lambda: next(_numbers))
    workers: list[Worker] = field(default_factory=list)

    @property
    def customer(self) -> str:
        return f"cus_{self.number}"

    @property
    def name(self) -> str:
        return f"inv_{self.number}"

    def job(self, who: str) -> Job:
        return Job(
            redis_url=self.redis_url,
            processor_url=self.servers.payment[who],
            database_url=self.servers.postgres.url(self.database, port=self.port),
            customer=self.customer,
            invoice=self.name,
            amount=4200,
            currency="EUR",
            lock_ttl_ms=self.lease_ms,
            worker=who,
        )

    def deliver(self, who: str) -> Worker:
        """Starts a worker on it."""
        self.workers.append(Worker(self.variant, self.job(who)))
        return self.workers[-1]

    @property
    def redis_url(self) -> str:
        return f"redis://127.0.0.1:{self.servers.redis_port}/{self.number % 99}"

    def run(self, who: str) -> tuple[int, list[dict[str, Any]]]:
        """Delivers it and waits for the worker's end."""
        return self.deliver(who).end()

    def control(self, method: str, path: str, **options: Any) -> Any:
        response = urllib3.request(method, f"{self.servers.control}/control/{path}", timeout=PATIENCE_S, **options)
        assert response.status == 200, response.data
        return response.json()

    def rule(self, **rule: Any) -> None:
        """Has the processor treat charges of this customer like this from now on."""
        self.control("PUT", "rules", json={"customer": self.customer, **rule})

    def lift(self) -> None:
        self.control("DELETE", "rules", fields={"customer": self.customer})

    def account(self, settle_ms: int = 0) -> Any:
        return self.control("GET", "account", fields={"customer": self.customer, "settle_ms": str(settle_ms)})

    def wait_for(self, what: str, who: str) -> None:
        """Waits until the processor's own log says so."""
        until(lambda: [True for entry in self.account()["log"] if (entry["what"], entry["who"]) == (what, who)])

    def charged_by(self) -> list[str]:
        """Who made the charges there are, once nothing is on its way any more."""
        return [charge["who"] for charge in self.account(settle_ms=5000)["charges"]]

    def call(self, coroutine: Any) -> Any:
        return self.servers.runner.run(coroutine)


Open = Callable[..., Invoice]
"""(variant, lease_ms, port) -> an invoice to bill; the fixture of that name cleans up."""
