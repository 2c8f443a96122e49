"""The payment addresses: one application for each role, so that the processor itself knows who called."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fakes.processor import fields
from fakes.processor.connection import close_connection
from fakes.processor.errors import invalid
from fakes.processor.http import Json, application, json_body
from fakes.processor.ledger import Order
from fakes.processor.processor import Processor

CHARGE_FIELDS = ("customer", "invoice", "amount", "currency", "intent")
READ_FIELDS = ("customer", "invoice", "intent")


def payment_application(processor: Processor, who: str) -> Starlette:
    """The payment API as one role sees it."""

    async def void(request: Request) -> Response:
        processor.void(fields.intent(request.path_params["intent"]), who)
        return Json({"voided": True})

    async def healthz(_request: Request) -> Response:
        return Json({"ok": True, "boot": processor.boot})

    return application(
        [
            Route("/v1/charges", _Charges(processor, who), methods=["GET", "POST"]),
            Route("/v1/intents/{intent}/void", void, methods=["POST"]),
            Route("/healthz", healthz),
        ]
    )


class _Charges:
    """/v1/charges as a bare ASGI application: a charge is in flight until its answer has been handed over, which a
    function that returns its answer could not see."""

    def __init__(self, processor: Processor, who: str) -> None:
        self._processor = processor
        self._who = who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            await self._charge(scope, receive, send)
        else:
            await self._read(scope)(scope, receive, send)

    async def _charge(self, scope: Scope, receive: Receive, send: Send) -> None:
        order = await _order(scope, receive)
        # From here on nobody asks whether the caller is still there: a request that has arrived runs to its end.
        visit = self._processor.arrive(order, self._who)
        try:
            answer = await self._processor.charge(visit)
            if answer.silent_until is None:
                headers = {"Idempotent-Replayed": "true"} if answer.replayed else None
                # Asked before the answer is sent: after it the connection of a Connection: close is closing.
                gone = scope["state"]["transport"].is_closing()
                await Json(answer.body, answer.status, headers)(scope, receive, send)
                if not gone:
                    visit.answered(answer)
        finally:
            visit.leave()
        if answer.silent_until is not None:
            await answer.silent_until.wait()
            await close_connection(scope, receive)

    def _read(self, scope: Scope) -> Response:
        given = fields.query(scope["query_string"], READ_FIELDS)
        customer = fields.text(given["customer"], "customer") if "customer" in given else None
        invoice = fields.text(given["invoice"], "invoice") if "invoice" in given else None
        intent = fields.intent(given["intent"]) if "intent" in given else None
        token = fields.fencing_token(scope["headers"])
        if customer is None and (intent is None or invoice is not None):
            raise invalid("customer", "missing")
        if customer is None and token is not None:
            raise invalid("Fencing-Token", "compared for each customer: name the customer too")
        charges = self._processor.read(self._who, customer=customer, invoice=invoice, intent=intent, token=token)
        return Json({"data": [charge.public() for charge in charges]})


async def _order(scope: Scope, receive: Receive) -> Order:
    """The charge request in a well-formed HTTP request. Raises Refusal for any other."""
    token = fields.fencing_token(scope["headers"])
    key = fields.idempotency_key(scope["headers"])
    fields.query(scope["query_string"], ())
    body = await json_body(scope, receive)
    fields.only(body, CHARGE_FIELDS)
    return Order(
        fields.text(body.get("customer"), "customer"),
        fields.text(body.get("invoice"), "invoice"),
        fields.amount(body.get("amount")),
        fields.currency(body.get("currency")),
        fields.intent(body["intent"]) if body.get("intent") is not None else None,
        token,
        key,
    )
