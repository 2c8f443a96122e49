"""The contract that every subject shares, and the small job API that the variants are written with.

A worker of any language gets the same values from its environment (ENVIRONMENT below); a Python callable gets them
as one frozen Job. Little is imported here, so that a variant is as light as any user's worker.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Self, TypeVar

import tenacity
import urllib3

T = TypeVar("T")

ENVIRONMENT = (
    "REDIS_URL",
    "REDIS_URLS",
    "PROCESSOR_URL",
    "DATABASE_URL",
    "CUSTOMER_ID",
    "INVOICE_ID",
    "AMOUNT",
    "CURRENCY",
    "LOCK_TTL_MS",
    "WORKER_NAME",
)
EXIT_GAVE_UP = 75
"""The exit status of a worker that gave up waiting for the lock (sysexits.h: EX_TEMPFAIL)."""

CHARGE_TIMEOUT_LEASES = 20
ACQUIRE_TIMEOUT_LEASES = 8


@dataclass(frozen=True, slots=True)
class Job:
    """One delivery of one billing job: whom to charge, for what, and where the servers are.

    amount is in minor units of currency (ISO 4217); lock_ttl_ms is the lease to ask for, in milliseconds;
    database_url is None where the stack has no Postgres; worker is A, B or C. redis_urls are all nodes, redis_url
    first, where the subject has asked for several (--harness-redis-nodes), else empty.
    """

    redis_url: str
    processor_url: str
    database_url: str | None
    customer: str
    invoice: str
    amount: int
    currency: str
    lock_ttl_ms: int
    worker: str
    redis_urls: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> Self:
        """The job of a worker process. Raises KeyError for a variable that is missing."""
        return cls(
            redis_url=env["REDIS_URL"],
            processor_url=env["PROCESSOR_URL"],
            database_url=env.get("DATABASE_URL") or None,
            customer=env["CUSTOMER_ID"],
            invoice=env["INVOICE_ID"],
            amount=int(env["AMOUNT"]),
            currency=env["CURRENCY"],
            lock_ttl_ms=int(env["LOCK_TTL_MS"]),
            worker=env["WORKER_NAME"],
            redis_urls=tuple(filter(None, env.get("REDIS_URLS", "").split(","))),
        )

    def to_env(self) -> dict[str, str]:
        """The same values as the environment of a worker process."""
        env = {
            "REDIS_URL": self.redis_url,
            "PROCESSOR_URL": self.processor_url,
            "CUSTOMER_ID": self.customer,
            "INVOICE_ID": self.invoice,
            "AMOUNT": str(self.amount),
            "CURRENCY": self.currency,
            "LOCK_TTL_MS": str(self.lock_ttl_ms),
            "WORKER_NAME": self.worker,
        }
        if self.database_url is not None:
            env["DATABASE_URL"] = self.database_url
        if self.redis_urls:
            env["REDIS_URLS"] = ",".join(self.redis_urls)
        return env

    @property
    def lease_s(self) -> float:
        """The lease in seconds."""
        return self.lock_ttl_ms / 1000


@dataclass(frozen=True, slots=True)
class Subject:
    """The code under test. target is MODULE:CALLABLE, or for a command its words.

    lease_factor: how much longer than LOCK_TTL_MS its lease is by its own declaration (long-ttl: 4). redis_nodes: how
    many Redis servers it asks for; with more than one it gets REDIS_URLS too.
    """

    name: str
    kind: str
    target: str | tuple[str, ...]
    lease_factor: float = 1.0
    redis_nodes: int = 1

    @property
    def shown(self) -> str:
        """The target as the user wrote it."""
        return self.target if isinstance(self.target, str) else " ".join(self.target)


class Refused(Exception):
    """The processor said no: code is the error's code, detail its whole error object."""

    def __init__(self, code: str, detail: Mapping[str, Any]) -> None:
        super().__init__(f"{code}: {detail.get('message', '')}")
        self.code = code
        self.detail = detail


class Processor:
    """The payment processor as a careful job sees it: no retries inside the HTTP client, one timeout, errors raised.

    Every call raises Refused when the processor says no, urllib3.exceptions.HTTPError when the outcome is unknown,
    as after timeout_leases without an answer.
    """

    def __init__(self, job: Job, *, timeout_leases: float = CHARGE_TIMEOUT_LEASES) -> None:
        self._job = job
        self._http = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(total=timeout_leases * job.lease_s))

    def charge(
        self, *, token: int | None = None, idempotency_key: str | None = None, intent: str | None = None
    ) -> dict[str, Any]:
        """Charges the job's invoice and returns the charge.

        A 409 idempotency_key_in_use says that the outcome is not known yet, so it is asked again until answered.
        """
        body = {
            "customer": self._job.customer,
            "invoice": self._job.invoice,
            "amount": self._job.amount,
            "currency": self._job.currency,
        }
        if intent is not None:
            body["intent"] = intent
        headers = _headers(token, idempotency_key)
        while True:
            try:
                return self._call("POST", "/v1/charges", headers, json=body)
            except Refused as refused:
                if refused.code != "idempotency_key_in_use":
                    raise

    def charges(self, *, token: int | None = None, intent: str | None = None) -> list[dict[str, Any]]:
        """The charges the processor has on record for this invoice, or for one intent."""
        query = {"customer": self._job.customer}
        query |= {"invoice": self._job.invoice} if intent is None else {"intent": intent}
        found: list[dict[str, Any]] = self._call("GET", "/v1/charges", _headers(token, None), fields=query)["data"]
        return found

    def void(self, intent: str) -> None:
        """Makes sure that no charge is ever made under this intent. Raises Refused intent_charged if one was."""
        self._call("POST", f"/v1/intents/{intent}/void", {})

    def _call(self, method: str, path: str, headers: Mapping[str, str], **body: Any) -> dict[str, Any]:
        response = self._http.request(method, self._job.processor_url + path, headers=headers, **body)
        if response.status >= 500:
            raise urllib3.exceptions.HTTPError(f"{method} {path} answered {response.status}: the outcome is unknown")
        answer: dict[str, Any] = response.json()
        if response.status >= 400:
            raise Refused(answer["error"]["code"], answer["error"])
        return answer


def _headers(token: int | None, idempotency_key: str | None) -> dict[str, str]:
    headers = {}
    if token is not None:
        headers["Fencing-Token"] = str(token)
    if idempotency_key is not None:
        headers["Idempotency-Key"] = idempotency_key
    return headers


def poll(job: Job, attempt: Callable[[], T]) -> T:
    """Asks for the lock 10 to 15 times a lease until attempt returns something true, which is returned.

    Gives up (exit status 75) after 8 leases.
    """
    lease_s = job.lease_s
    polling = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda got: not got),
        wait=tenacity.wait_random(lease_s / 15, lease_s / 10),
        stop=tenacity.stop_after_delay(ACQUIRE_TIMEOUT_LEASES * lease_s),
    )
    try:
        return polling(attempt)
    except tenacity.RetryError:
        give_up(f"no lock within {ACQUIRE_TIMEOUT_LEASES} leases")


def say(event: str, **fields: Any) -> None:
    """Puts a line into the experiment's history. It explains; it never decides a verdict."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def give_up(why: str) -> NoReturn:
    """Ends the worker because it could not get the lock in time."""
    say("gave-up", why=why)
    sys.exit(EXIT_GAVE_UP)
