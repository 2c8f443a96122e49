"""Every protocol on a link is cut into the same messages however the bytes arrive, and no byte is ever lost."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable

import pytest

from harness.network import http, pgwire, resp
from harness.network.framing import Frame, Framer, Opaque, slug

Framers = Callable[[], tuple[Framer, Framer]]


def command(*words: bytes) -> bytes:
    """One RESP command."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def message(kind: bytes, payload: bytes) -> bytes:
    """One typed PostgreSQL message."""
    return kind + struct.pack("!I", len(payload) + 4) + payload


def startup(code: int, payload: bytes = b"") -> bytes:
    """One untyped PostgreSQL message, as they come first."""
    return struct.pack("!II", len(payload) + 8, code) + payload


SCRIPT = b"return redis.call('GET', KEYS[1])"
POST = (
    b"POST /v1/charges HTTP/1.1\r\nHost: p\r\nFencing-Token: 7\r\nContent-Type: application/json\r\n"
    b'Content-Length: 17\r\n\r\n{"customer": "c"}'
)
CHUNKED_POST = (
    b"POST /v1/charges HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'6\r\n{"a": \r\nb;ext=1\r\n1234567890}\r\n0\r\n\r\n'
)
READY = message(b"Z", b"I")
AUTH_OK = message(b"R", struct.pack("!I", 0))
AUTH_SASL = message(b"R", struct.pack("!I", 10) + b"SCRAM-SHA-256\0\0")
AUTH_SASL_FINAL = message(b"R", struct.pack("!I", 12) + b"v=x")


def feed(framer: Framer, chunks: list[bytes]) -> list[Frame]:
    return [frame for chunk in chunks for frame in framer.feed(chunk)]


def splits(data: bytes) -> list[list[bytes]]:
    """The whole, every split in two, and byte by byte."""
    return [[data], *([data[:i], data[i:]] for i in range(1, len(data))), [data[i : i + 1] for i in range(len(data))]]


REQUESTS: dict[str, tuple[Framers, bytes, list[str]]] = {
    "redis commands in a pipeline": (
        resp.framers,
        command(b"SET", b"lock:c", b"\r\n$5\r\n\0", b"NX", b"PX", b"1000") + command(b"GET", b"") + command(b"PING"),
        ["set", "get", "ping"],
    ),
    "redis containers and scripts": (
        resp.framers,
        command(b"CLIENT", b"SETINFO", b"LIB-NAME", b"x")
        + command(b"EVAL", SCRIPT, b"1", b"k")
        + command(b"EVALSHA", hashlib.sha1(SCRIPT).hexdigest().upper().encode(), b"1", b"k"),
        ["client-setinfo"] + ["eval-" + hashlib.sha1(SCRIPT).hexdigest()[:4]] * 2,
    ),
    "http on one connection kept alive": (
        http.framers,
        POST + b"GET /v1/charges?customer=c&invoice=i HTTP/1.1\r\nHost: p\r\n\r\n" + CHUNKED_POST,
        ["post-v1-charges", "get-v1-charges", "post-v1-charges"],
    ),
    "http paths without their ids, proxies' absolute form too": (
        http.framers,
        b"POST /v1/intents/9f3a-77/void HTTP/1.1\r\nHost: p\r\nContent-Length: 0\r\n\r\n"
        b"GET http://p:80/v1/charges HTTP/1.1\r\nHost: p\r\n\r\n",
        ["post-v1-intents-void", "get-v1-charges"],
    ),
    "postgres from the offer of TLS to the end": (
        pgwire.framers,
        startup(80877103)
        + startup(196608, b"user\0u\0database\0d\0\0")
        + message(b"p", b"n,,n=,r=x")
        + message(b"Q", b"/* job */ SELECT pg_advisory_lock(1)\0")
        + message(b"P", b"\0insert into paid values ($1)\0\0\0")
        + message(b"B", b"\0\0\0\0\0\0\0\0")
        + message(b"E", b"\0\0\0\0\0")
        + message(b"S", b"")
        + message(b"X", b""),
        ["ssl-request", "startup", "password", "select", "insert", "terminate"],
    ),
    "postgres: a request to cancel": (pgwire.framers, startup(80877102, b"\0\0\0\1\0\0\0\2"), ["cancel"]),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_requests_are_cut_and_named_the_same_however_they_are_split(case: str) -> None:
    framers, data, labels = REQUESTS[case]
    for chunks in splits(data):
        frames = feed(framers()[0], chunks)
        assert [frame.label for frame in frames] == labels
        assert b"".join(frame.raw for frame in frames) == data


REPLIES: dict[str, tuple[Framers, list[bytes], list[str]]] = {
    "resp 2": (
        resp.framers,
        [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":1\r\n",
            b"$-1\r\n",
            b"$4\r\n\r\n\r\n\r\n",
            b"*2\r\n$1\r\na\r\n*-1\r\n",
            b"*0\r\n",
        ],
        [""] * 7,
    ),
    "resp 3, with pushes between the answers": (
        resp.framers,
        [
            b"%1\r\n+server\r\n$6\r\nvalkey\r\n",
            b">3\r\n+message\r\n+channel\r\n$2\r\nhi\r\n",
            b"|1\r\n+ttl\r\n:3600\r\n*2\r\n#t\r\n,3.14\r\n",
            b"~2\r\n_\r\n(3492890328409238509324850943850943825024385\r\n",
            b"=15\r\ntxt:Some string\r\n",
            b"!5\r\nERR x\r\n",
        ],
        ["", "push", "", "", "", ""],
    ),
}


@pytest.mark.parametrize("case", REPLIES)
def test_redis_answers_are_cut_the_same_however_they_are_split(case: str) -> None:
    framers, messages, labels = REPLIES[case]
    for chunks in splits(b"".join(messages)):
        frames = feed(framers()[1], chunks)
        assert [frame.raw for frame in frames] == messages
        assert [frame.label for frame in frames] == labels


def test_http_answers_are_cut_by_length_by_chunks_and_by_the_method_they_answer() -> None:
    answers = [
        b'HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\n{"id":1}',
        b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n",  # of a HEAD: there is no body
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ]
    asked = b"".join(
        b"%s / HTTP/1.1\r\nHost: p\r\nContent-Length: 0\r\n\r\n" % m for m in (b"POST", b"HEAD", b"GET", b"PUT")
    )
    for chunks in splits(b"".join(answers)):
        requests, replies = http.framers()
        assert len(requests.feed(asked)) == 4
        frames = feed(replies, chunks)
        assert [frame.raw for frame in frames] == answers
        assert [frame.info["status"] for frame in frames] == [201, 200, 200, 204]


def test_what_was_understood_of_a_charge_is_kept_with_it() -> None:
    (frame,) = http.framers()[0].feed(POST)
    assert (frame.info["method"], frame.info["target"], frame.info["body"]) == (
        "POST",
        "/v1/charges",
        b'{"customer": "c"}',
    )
    assert frame.info["headers"]["fencing-token"] == "7"
    (frame,) = http.framers()[0].feed(CHUNKED_POST)
    assert frame.info["body"] == b'{"a": 1234567890}'


def test_an_http_answer_that_lasts_until_the_end_of_the_connection_is_the_rest() -> None:
    requests, replies = http.framers()
    requests.feed(b"GET / HTTP/1.1\r\nHost: p\r\n\r\n")
    answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end"
    assert replies.feed(answer) == []
    assert replies.rest() == answer
    assert replies.rest() == b""


def test_postgres_answers_end_when_the_server_is_ready_or_asks_for_something() -> None:
    rows = message(b"T", b"\0\0") + message(b"D", b"\0\0") + message(b"C", b"SELECT 1\0") + READY
    login = AUTH_SASL_FINAL + AUTH_OK + message(b"S", b"TimeZone\0UTC\0") + message(b"K", b"\0" * 8) + READY
    expected = [AUTH_SASL, login, rows]
    for chunks in splits(b"".join(expected)):
        requests, replies = pgwire.framers()
        requests.feed(startup(80877103))
        assert [frame.raw for frame in replies.feed(b"N")] == [b"N"]
        requests.feed(startup(196608, b"user\0u\0\0"))
        assert [frame.raw for frame in feed(replies, chunks)] == expected


def test_once_postgres_agrees_to_tls_every_byte_is_passed_on_unread() -> None:
    requests, replies = pgwire.framers()
    requests.feed(startup(80877103))
    assert [frame.raw for frame in replies.feed(b"S")] == [b"S"]
    assert [(frame.label, frame.raw) for frame in requests.feed(b"\x16\x03\x01\x02\x00")] == [
        ("bytes", b"\x16\x03\x01\x02\x00")
    ]
    assert [(frame.label, frame.raw) for frame in replies.feed(b"\x16\x03\x03")] == [("bytes", b"\x16\x03\x03")]


@pytest.mark.parametrize(
    ("framers", "nonsense"),
    [
        (resp.framers, b"PING\r\n"),
        (resp.framers, b"*x\r\n"),
        (resp.framers, b"*1\r\n+PING\r\n"),
        (resp.framers, b"*0\r\n"),
        (resp.framers, b"*" + b"1" * 100),
        (http.framers, b"\x16\x03\x01 TLS on a plain port\r\n\r\n"),
        (pgwire.framers, b"GET / HTTP/1.1\r\n\r\n"),
    ],
)
def test_what_nothing_can_parse_is_passed_on_at_once_and_so_is_all_behind_it(framers: Framers, nonsense: bytes) -> None:
    requests, _ = framers()
    later = command(b"GET", b"k")
    assert [(frame.label, frame.raw) for frame in requests.feed(nonsense)] == [("bytes", nonsense)]
    assert [(frame.label, frame.raw) for frame in requests.feed(later)] == [("bytes", later)]
    assert requests.rest() == b""


def test_nonsense_behind_a_whole_message_does_not_swallow_it() -> None:
    good = command(b"GET", b"k")
    frames = resp.framers()[0].feed(good + b"?what\r\n")
    assert [(frame.label, frame.raw) for frame in frames] == [("get", good), ("bytes", b"?what\r\n")]


def test_a_link_of_no_known_protocol_has_a_message_for_every_chunk() -> None:
    framer = Opaque()
    assert [frame.label for frame in feed(framer, [b"a", b"b"])] == ["bytes", "bytes"]
    assert framer.rest() == b""


@pytest.mark.parametrize(("text", "label"), [("GET", "get"), ("JSON.SET", "json-set"), ("--", "bytes"), ("Ünï", "n")])
def test_labels_are_lower_case_words_joined_by_hyphens(text: str, label: str) -> None:
    assert slug(text) == label
