"""The control address: what goes wrong, for whom, and what really happened. No fault touches it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fakes.processor import fields
from fakes.processor.errors import invalid
from fakes.processor.http import Json, application, json_body
from fakes.processor.processor import Processor
from fakes.processor.rules import FAILURES, Rule

LONGEST_LATENCY_MS = 10 * 60 * 1000
LONGEST_SETTLE_MS = 10 * 60 * 1000
RULE_FIELDS = (
    "customer",
    "invoice",
    "who",
    "before_commit_ms",
    "after_commit_ms",
    "fail",
    "times",
    "idempotency_ttl_ms",
)


def control_application(processor: Processor, roles: Collection[str]) -> Starlette:
    """The control API.

    GET /control/health; PUT /control/rules (one rule); DELETE /control/rules?customer=;
    GET /control/account?customer=[&settle_ms=]; DELETE /control/customers?customer=
    """

    async def health(_request: Request) -> Response:
        return Json({"ok": True, "boot": processor.boot, "monotonic_ns": time.monotonic_ns(), "pid": os.getpid()})

    async def rules(request: Request) -> Response:
        if request.method == "PUT":
            processor.rules.put(_rule(await json_body(request.scope, request.receive), roles))
        else:
            processor.rules.drop(_customer(request))
        return Json({"ok": True})

    async def account(request: Request) -> Response:
        given = fields.query(request.scope["query_string"], ("customer", "settle_ms"))
        customer = fields.text(given.get("customer"), "customer")
        settle_ms = fields.whole_number(given.get("settle_ms", "0"), "settle_ms", largest=LONGEST_SETTLE_MS)
        await processor.settle(customer, settle_ms)
        return Json(processor.account(customer))

    async def customers(request: Request) -> Response:
        processor.forget(_customer(request))
        return Json({"ok": True})

    return application(
        [
            Route("/control/health", health),
            Route("/healthz", health),
            Route("/control/rules", rules, methods=["PUT", "DELETE"]),
            Route("/control/account", account),
            Route("/control/customers", customers, methods=["DELETE"]),
        ]
    )


def _customer(request: Request) -> str:
    return fields.text(fields.query(request.scope["query_string"], ("customer",)).get("customer"), "customer")


def _rule(body: dict[str, Any], roles: Collection[str]) -> Rule:
    fields.only(body, RULE_FIELDS)
    times, kept_ms = body.get("times"), body.get("idempotency_ttl_ms")
    return Rule(
        customer=fields.text(body.get("customer"), "customer"),
        invoice=fields.text(body["invoice"], "invoice") if body.get("invoice") is not None else None,
        who=fields.one_of(body.get("who"), "who", roles),
        before_commit_ms=_milliseconds(body.get("before_commit_ms", 0), "before_commit_ms"),
        after_commit_ms=_milliseconds(body.get("after_commit_ms", 0), "after_commit_ms"),
        fail=fields.one_of(body.get("fail"), "fail", FAILURES),
        times=None if times is None else fields.whole_number(times, "times", smallest=1, largest=1_000_000),
        idempotency_ttl_ms=None
        if kept_ms is None
        else fields.whole_number(kept_ms, "idempotency_ttl_ms", largest=2**40),
    )


def _milliseconds(value: object, param: str) -> float:
    """A latency: any finite number, because multiples of a lease are seldom whole."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise invalid(param, "must be a number")
    if not (math.isfinite(value) and 0 <= value <= LONGEST_LATENCY_MS):
        raise invalid(param, f"must be from 0 to {LONGEST_LATENCY_MS}")
    return value
