"""Refusals, with the status and the text that Toxiproxy's own api.go gives them."""

from __future__ import annotations


class ApiError(Exception):
    """A request is refused. status: the HTTP status; text: the value of "error" in the body."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.text = text
        self.status = status


def bad_request_body(complaint: str) -> ApiError:
    """The body is not JSON, or a value in it has the wrong type; complaint: encoding/json's words."""
    return ApiError(f"bad request body: {complaint}", 400)


def missing_field(name: str) -> ApiError:
    return ApiError(f"missing required field: {name}", 400)


def invalid_stream() -> ApiError:
    return ApiError("stream was invalid, can be either upstream or downstream", 400)


def invalid_toxic_type() -> ApiError:
    return ApiError("invalid toxic type", 400)


def proxy_not_found() -> ApiError:
    return ApiError("proxy not found", 404)


def toxic_not_found() -> ApiError:
    return ApiError("toxic not found", 404)


def proxy_already_exists() -> ApiError:
    return ApiError("proxy already exists", 409)


def toxic_already_exists() -> ApiError:
    return ApiError("toxic already exists", 409)


def unexpected(complaint: str) -> ApiError:
    """What Toxiproxy has no status of its own for, such as an address it cannot listen on: 500."""
    return ApiError(complaint, 500)
