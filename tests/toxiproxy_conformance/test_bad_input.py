"""Input that nobody thought of: the stand-in never fails of its own accord, never hangs, and answers like the real one.

The only 5xx are Toxiproxy's own: an address to listen on that cannot be had is 500, and says why.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .servers import Answer, Server, running

quick = settings(deadline=None, max_examples=120)

TYPES = ["latency", "bandwidth", "slow_close", "timeout", "reset_peer", "slicer", "limit_data", "noop", "none"]
ATTRIBUTES = ["latency", "jitter", "rate", "delay", "timeout", "average_size", "size_variation", "bytes", "LATENCY"]
ADDRESSES = ["127.0.0.1:0", "", ":", "nonsense", "[::1", "127.0.0.1:99999", "a:b:c", "127.0.0.1:x", "127.0.0.01:0"]

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
junk: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=6
)


def mostly(*values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One of these, or now and then anything at all."""
    return st.one_of(*values, *values, *values, junk)


proxy_names = st.sampled_from(["a", "b", "ü x", "%", "none"])
toxic_names = st.sampled_from(["t", "latency_downstream", "ü x", "none"])
streams = st.sampled_from(["upstream", "downstream", "UPSTREAM", "side", ""])
attributes = st.dictionaries(st.sampled_from(ATTRIBUTES), mostly(st.integers(-5, 2**64)), max_size=4)

proxy_bodies = st.fixed_dictionaries(
    {},
    optional={
        "name": mostly(proxy_names),
        "upstream": mostly(st.just("127.0.0.1:1")),
        "listen": mostly(st.just("127.0.0.1:0")).map(
            lambda value: value if value in ADDRESSES or not isinstance(value, str) else "nonsense"
        ),
        "enabled": mostly(st.booleans()),
        "Logger": junk,
        "toxics": junk,
    },
)
toxic_bodies = st.fixed_dictionaries(
    {"type": mostly(st.sampled_from(TYPES))},
    optional={
        "name": mostly(toxic_names),
        "stream": mostly(streams),
        "toxicity": mostly(st.floats(0, 1), st.floats(-1e40, 1e40)),
        "attributes": mostly(attributes),
    },
)
valid_json = mostly(proxy_bodies, toxic_bodies, st.lists(proxy_bodies, max_size=3)).map(json.dumps)


@st.composite
def broken_json(draw: st.DrawFn) -> bytes:
    """JSON with a piece cut out, or with something put in."""
    text = draw(valid_json).encode()
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 3)))
    return text[:start] + draw(st.binary(max_size=2)) + text[end:]


proxy_paths = proxy_names.map(lambda name: f"/proxies/{quote(name)}")
toxics_paths = proxy_paths.map(lambda path: f"{path}/toxics")
toxic_paths = st.tuples(toxics_paths, toxic_names).map(lambda parts: f"{parts[0]}/{quote(parts[1])}")
known_paths = st.sampled_from(["/proxies", "/populate", "/reset", "/version", "/metrics"])
requests = st.tuples(
    st.sampled_from(["GET", "POST", "PATCH", "DELETE", "PUT", "OPTIONS"]),
    st.one_of(known_paths, proxy_paths, toxics_paths, toxic_paths),
    st.one_of(valid_json.map(str.encode), broken_json(), st.none()),
)
likely_requests = st.one_of(
    st.tuples(st.just("POST"), st.just("/proxies"), proxy_bodies.map(json.dumps)),
    st.tuples(st.sampled_from(["POST", "PATCH"]), proxy_paths, proxy_bodies.map(json.dumps)),
    st.tuples(st.just("POST"), toxics_paths, toxic_bodies.map(json.dumps)),
    st.tuples(st.sampled_from(["POST", "PATCH"]), toxic_paths, toxic_bodies.map(json.dumps)),
    st.tuples(st.just("POST"), st.just("/populate"), st.lists(proxy_bodies, max_size=3).map(json.dumps)),
    st.tuples(st.sampled_from(["GET", "DELETE"]), st.one_of(proxy_paths, toxics_paths, toxic_paths), st.none()),
)


def assert_sane(answer: Answer) -> None:
    if answer.status >= 500:
        assert answer.status == 500
        assert re.match("(listen tcp|address|lookup)", answer.json["error"]), answer


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    with running("real") as real, running("stand-in") as stand_in:
        yield real, stand_in


def empty(server: Server) -> None:
    """Proxies whose name cannot be part of a path stay: there is no way to delete them."""
    for name in server.call("GET", "/proxies").json:
        server.call("DELETE", f"/proxies/{quote(name, safe='')}")


@quick
@given(sequence=st.lists(st.one_of(requests, likely_requests), max_size=8))
def test_no_request_makes_the_stand_in_fail_or_hang(
    stand_in: Server, sequence: list[tuple[str, str, bytes | str | None]]
) -> None:
    for method, path, body in sequence:
        assert_sane(stand_in.call(method, path, body))
    assert stand_in.call("GET", "/version").status == 200
    empty(stand_in)


@quick
@given(path=st.text(min_size=1, max_size=30), method=st.sampled_from(["GET", "POST", "DELETE"]))
def test_no_path_makes_the_stand_in_fail(stand_in: Server, path: str, method: str) -> None:
    answer = stand_in.call(method, f"/proxies/{quote(path)}")
    assert answer.status in (301, 404, 405)


@quick
@given(data=st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: b"POST /proxies HTTP/1.1\r\n" + tail))
def test_no_bytes_that_are_not_http_make_the_stand_in_fail(stand_in: Server, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", stand_in.port), timeout=10) as raw:
        raw.sendall(data)
        raw.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while received := raw.recv(65_536):
                answer += received
        except ConnectionResetError:
            pass
    assert not re.match(rb"HTTP/1\.1 5", answer), answer
    assert stand_in.call("GET", "/version").status == 200


@quick
@given(sequence=st.lists(st.one_of(likely_requests, likely_requests, requests), min_size=1, max_size=10))
def test_the_real_server_answers_every_sequence_of_requests_the_same(
    pair: tuple[Server, Server], sequence: list[tuple[str, str, bytes | str | None]]
) -> None:
    for server in pair:
        empty(server)
    for request in sequence:
        real, stand_in = (comparable(server.call(*request)) for server in pair)
        assert stand_in == real, request


def comparable(answer: Answer) -> tuple[int, str, str | None]:
    """Without port numbers, and without how a field is called in Go, which depends on the version of Go."""
    body = answer.body.decode()
    body = re.sub(r'("listen":"[^"]*:)[1-9]\d*"', r'\1PORT"', body)
    body = re.sub(r"into Go (struct field .*?|value) of type", "into Go FIELD of type", body)
    return answer.status, body, answer.headers.get("content-type")


@pytest.mark.parametrize(
    ("type_name", "attributes"),
    [
        ("slicer", {"average_size": 0, "size_variation": 0}),
        ("slicer", {"average_size": 10, "size_variation": 1000, "delay": -1}),
        ("latency", {"latency": 0, "jitter": -1}),
        ("timeout", {"timeout": 2**63 - 1}),
    ],
)
def test_attributes_that_mean_nothing_or_would_crash_the_real_server_are_tamed(
    stand_in: Server, type_name: str, attributes: dict[str, int]
) -> None:
    """The slicers would recurse for ever, or slice past the end; what is left passes, or for timeout is dropped."""
    empty(stand_in)
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        listen = stand_in.create("web", f"127.0.0.1:{upstream.getsockname()[1]}")["listen"]
        toxic = {"type": type_name, "stream": "upstream", "attributes": attributes}
        assert stand_in.call("POST", "/proxies/web/toxics", toxic).status == 200
        with socket.create_connection(("127.0.0.1", int(listen.rpartition(":")[2])), timeout=10) as near:
            far, _ = upstream.accept()
            with far:
                near.sendall(b"everything")
                near.close()
                far.settimeout(10)
                received = b""
                while data := far.recv(100):
                    received += data
    assert received == (b"" if type_name == "timeout" else b"everything")


@settings(deadline=None, max_examples=60)
@given(
    type_name=st.sampled_from(TYPES[:-1]),
    stream=st.sampled_from(["upstream", "downstream"]),
    values=st.lists(st.sampled_from([-(2**63), -1, 0, 1, 7, 2**62, 2**63 - 1]), min_size=3, max_size=3),
    live=st.booleans(),
)
def test_no_attribute_keeps_the_stand_in_from_carrying_on(
    stand_in: Server, type_name: str, stream: str, values: list[int], live: bool
) -> None:
    """Bytes meet the toxic; when it is gone, its connection drains or ends and the next one works.

    reset_peer is left out where it would wait: its wait cannot be cut short, in the real server neither.
    """
    if type_name == "reset_peer":
        values = [min(value, 1) for value in values]
    empty(stand_in)
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        listen = stand_in.create("web", f"127.0.0.1:{upstream.getsockname()[1]}")["listen"]
        address = ("127.0.0.1", int(listen.rpartition(":")[2]))
        toxic = {"name": "t", "type": type_name, "stream": stream}
        if live:
            near = socket.create_connection(address, timeout=10)
        shown = stand_in.call("POST", "/proxies/web/toxics", toxic).json["attributes"]
        wild = {"attributes": dict(zip(shown, values, strict=False))}
        assert stand_in.call("PATCH", "/proxies/web/toxics/t", wild).status == 200
        if not live:
            near = socket.create_connection(address, timeout=10)
        far, _ = upstream.accept()
        with near, far:
            sender = near if stream == "upstream" else far
            sender.sendall(bytes(2000))
            assert stand_in.call("DELETE", "/proxies/web/toxics/t").status == 204
        with socket.create_connection(address, timeout=10) as near:
            far, _ = upstream.accept()
            with far:
                near.sendall(b"x")
                assert far.recv(1) == b"x"
