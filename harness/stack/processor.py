"""The harness's own way to the fake payment processor: its control address, which no fault touches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import urllib3

from harness.history import now_ns
from harness.stack import Address, StackError

ROLES = ("A", "B", "C")
_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Account:
    """What the processor has on one customer: charges from the ledger on disk, its log, what is still in flight."""

    boot: str
    in_flight: int
    mark: int | None
    charges: list[dict[str, Any]]
    log: list[dict[str, Any]]


@dataclass(slots=True)
class ProcessorControl:
    """Addresses of a running processor, and its control interface. payment maps a role to its payment address."""

    payment: Mapping[str, Address]
    control: str
    boot: str = ""
    _pool: urllib3.PoolManager = field(
        default_factory=lambda: urllib3.PoolManager(
            retries=False, maxsize=16, timeout=urllib3.Timeout(total=_TIMEOUT_S)
        )
    )
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8, "processor-control"))

    async def _call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        def call() -> Any:
            response = (
                self._pool.request(method, self.control + path, fields=query or None, json=body)
                if body is None
                else self._pool.request(method, self.control + path, json=body)
            )
            if response.status != 200:
                raise StackError(
                    f"the processor's control address answered {response.status} to {method} {path}: "
                    f"{response.data[:300]!r}"
                )
            return json.loads(response.data)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except urllib3.exceptions.HTTPError as error:
            raise StackError(f"the processor's control address {self.control} does not answer: {error}") from error
        except ValueError as error:
            raise StackError(
                f"the processor's control address answered {method} {path} with something else than JSON"
            ) from error

    async def health(self) -> dict[str, Any]:
        answer: dict[str, Any] = await self._call("GET", "/control/health")
        return answer

    async def clock_error_ms(self) -> float:
        """How far the processor's clock is from ours, beyond what the round trip explains; 0 when they agree."""
        before = now_ns()
        theirs = int((await self.health())["monotonic_ns"])
        after = now_ns()
        return max(0, before - theirs, theirs - after) / 1e6

    async def set_rule(self, customer: str, **rule: Any) -> None:
        """Sets latency or an injected failure for one customer's charges (see fakes/processor)."""
        await self._call("PUT", "/control/rules", {"customer": customer, **rule})

    async def drop_rules(self, customer: str) -> None:
        """Ends all rules of a customer; held requests are let go."""
        await self._call("DELETE", "/control/rules", customer=customer)

    async def account(self, customer: str) -> Account:
        answer = await self._call("GET", "/control/account", customer=customer)
        return Account(answer["boot"], answer["in_flight"], answer["mark"], answer["charges"], answer["log"])

    async def forget(self, customer: str) -> None:
        """Lets the processor forget the customer's rules and log; the ledger stays."""
        await self._call("DELETE", "/control/customers", customer=customer)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._pool.clear()
