"""What the servers refuse, with which status and in which words."""

from __future__ import annotations

import re

import pytest

from .servers import Server

TEXT = "text/plain; charset=utf-8"


@pytest.fixture
def proxy(fresh: Server) -> str:
    fresh.create("web")
    fresh.call("POST", "/proxies/web/toxics", {"name": "t", "type": "latency", "attributes": {"latency": 1}})
    return "/proxies/web"


def refused(server: Server, method: str, path: str, body: object = None) -> tuple[int, str]:
    """Status and error; the form that every refusal has is checked on the way."""
    answer = server.call(method, path, body)
    assert answer.headers["content-type"] == TEXT, answer
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert re.fullmatch(rb'\{"error":".*","status":\d+\}\n', answer.body), answer
    assert answer.json["status"] == answer.status
    return answer.status, answer.json["error"]


@pytest.mark.parametrize(
    ("method", "path", "error"),
    [
        ("GET", "/proxies/none", "proxy not found"),
        ("PATCH", "/proxies/none", "proxy not found"),
        ("POST", "/proxies/none", "proxy not found"),
        ("DELETE", "/proxies/none", "proxy not found"),
        ("GET", "/proxies/none/toxics", "proxy not found"),
        ("POST", "/proxies/none/toxics", "proxy not found"),
        ("GET", "/proxies/none/toxics/t", "proxy not found"),
        ("PATCH", "/proxies/none/toxics/t", "proxy not found"),
        ("DELETE", "/proxies/none/toxics/t", "proxy not found"),
        ("GET", "/proxies/web/toxics/none", "toxic not found"),
        ("PATCH", "/proxies/web/toxics/none", "toxic not found"),
        ("POST", "/proxies/web/toxics/none", "toxic not found"),
        ("DELETE", "/proxies/web/toxics/none", "toxic not found"),
    ],
)
def test_unknown_names_are_404_before_the_body_is_looked_at(
    fresh: Server, proxy: str, method: str, path: str, error: str
) -> None:
    assert refused(fresh, method, path, "{malformed") == (404, error)


def test_names_are_taken_once(fresh: Server, proxy: str) -> None:
    again = {"name": "web", "upstream": "u", "listen": "nonsense"}
    assert refused(fresh, "POST", "/proxies", again) == (409, "proxy already exists")
    for stream in ("upstream", "downstream"):
        toxic = {"name": "t", "type": "slicer", "stream": stream}
        assert refused(fresh, "POST", f"{proxy}/toxics", toxic) == (409, "toxic already exists")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, "missing required field: name"),
        ("null", "missing required field: name"),
        ({"name": "", "upstream": ""}, "missing required field: name"),
        ({"name": "x"}, "missing required field: upstream"),
        ({"name": "x", "upstream": ""}, "missing required field: upstream"),
    ],
)
def test_a_proxy_needs_a_name_and_an_upstream(fresh: Server, body: object, error: str) -> None:
    assert refused(fresh, "POST", "/proxies", body) == (400, error)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, "invalid toxic type"),
        ({"type": "Latency"}, "invalid toxic type"),
        ({"type": "none", "attributes": {"latency": "x"}}, "invalid toxic type"),
        ({"type": "none", "stream": "sideways"}, "stream was invalid, can be either upstream or downstream"),
        ({"type": "latency", "stream": ""}, "stream was invalid, can be either upstream or downstream"),
    ],
)
def test_a_toxic_needs_a_type_and_a_stream_that_exist(fresh: Server, proxy: str, body: object, error: str) -> None:
    assert refused(fresh, "POST", f"{proxy}/toxics", body) == (400, error)


MALFORMED = {
    "": "EOF",
    " \n": "EOF",
    "{": "unexpected EOF",
    '{"a"': "unexpected EOF",
    "[": "unexpected EOF",
    "tru": "unexpected EOF",
    "-": "unexpected EOF",
    '"\\u12': "unexpected EOF",
    "x": "invalid character 'x' looking for beginning of value",
    "'": "invalid character '\\'' looking for beginning of value",
    "<": "invalid character '<' looking for beginning of value",
    "é": "invalid character 'Ã' looking for beginning of value",
    "\x00": "invalid character '\\x00' looking for beginning of value",
    "[1,]": "invalid character ']' looking for beginning of value",
    "[1 2]": "invalid character '2' after array element",
    "[01]": "invalid character '1' after array element",
    '{"a":1,}': "invalid character '}' looking for beginning of object key string",
    "{1": "invalid character '1' looking for beginning of object key string",
    '{"a" 1}': "invalid character '1' after object key",
    '{"a":1 "b"}': "invalid character '\"' after object key:value pair",
    "trux": "invalid character 'x' in literal true (expecting 'e')",
    "nil": "invalid character 'i' in literal null (expecting 'u')",
    "-x": "invalid character 'x' in numeric literal",
    "1.x": "invalid character 'x' after decimal point in numeric literal",
    "1e+x": "invalid character 'x' in exponent of numeric literal",
    '"\\x"': "invalid character 'x' in string escape code",
    '"\\u12x"': "invalid character 'x' in \\u hexadecimal character escape",
    '"\n"': "invalid character '\\n' in string literal",
    "[" * 10_001: "invalid character '[' exceeded max depth",
}


@pytest.mark.parametrize(("body", "error"), MALFORMED.items(), ids=[body[:12] or "empty" for body in MALFORMED])
def test_malformed_json_is_400_and_says_where(fresh: Server, proxy: str, body: str, error: str) -> None:
    wanted = (400, f"bad request body: {error}")
    assert refused(fresh, "POST", "/proxies", body) == wanted
    assert refused(fresh, "PATCH", proxy, body) == wanted
    assert refused(fresh, "POST", f"{proxy}/toxics", body) == wanted
    assert refused(fresh, "PATCH", f"{proxy}/toxics/t", body) == wanted
    answer = fresh.call("POST", "/populate", body)
    assert answer.json == {"error": wanted[1], "status": 400, "proxies": None}


@pytest.mark.parametrize(
    ("method", "path", "body", "what", "go_type"),
    [
        ("POST", "/proxies", "[]", "array", "toxiproxy.Proxy"),
        ("POST", "/proxies", "true", "bool", "toxiproxy.Proxy"),
        ("POST", "/proxies", {"name": 1.5}, "number", "string"),
        ("POST", "/proxies", {"name": "x", "upstream": ["u"]}, "array", "string"),
        ("POST", "/proxies", {"name": 1, "upstream": True}, "number", "string"),
        ("POST", "/proxies", {"name": "x", "upstream": "u", "enabled": "true"}, "string", "bool"),
        ("POST", "/proxies", {"name": "x", "upstream": "u", "listen": {}}, "object", "string"),
        ("POST", "/proxies", {"name": "x", "upstream": "u", "Logger": 1}, "number", "zerolog.Logger"),
        ("PATCH", "/proxies/web", {"enabled": 0}, "number", "bool"),
        ("POST", "/proxies/web/toxics", "7", "number", "toxics.ToxicWrapper"),
        ("POST", "/proxies/web/toxics", {"type": 5}, "number", "string"),
        ("POST", "/proxies/web/toxics", {"type": "latency", "toxicity": "1"}, "string", "float32"),
        ("POST", "/proxies/web/toxics", '{"type":"latency","toxicity":1e39}', "number 1e39", "float32"),
        ("POST", "/proxies/web/toxics", {"type": "latency", "attributes": 5}, "number", "toxics.NoopToxic"),
        ("POST", "/proxies/web/toxics", {"type": "latency", "attributes": {"latency": "5"}}, "string", "int64"),
        ("POST", "/proxies/web/toxics", {"type": "latency", "attributes": {"latency": 1.5}}, "number 1.5", "int64"),
        ("POST", "/proxies/web/toxics", '{"type":"latency","attributes":{"jitter":1e2}}', "number 1e2", "int64"),
        (
            "POST",
            "/proxies/web/toxics",
            {"type": "latency", "attributes": {"jitter": 2**63}},
            f"number {2**63}",
            "int64",
        ),
        ("POST", "/proxies/web/toxics", {"type": "slicer", "attributes": {"delay": True}}, "bool", "int"),
        ("PATCH", "/proxies/web/toxics/t", {"attributes": []}, "array", "toxics.LatencyToxic"),
        ("PATCH", "/proxies/web/toxics/t", {"toxicity": "x"}, "string", "float32"),
        ("PATCH", "/proxies/web/toxics/t", {"attributes": {"jitter": "x"}}, "string", "int64"),
    ],
)
def test_a_value_of_the_wrong_type_is_400_and_says_which(
    fresh: Server, proxy: str, method: str, path: str, body: object, what: str, go_type: str
) -> None:
    """How the field is called between the two depends on the version of Go that Toxiproxy was built with."""
    status, error = refused(fresh, method, path, body)
    wanted = (
        f"bad request body: json: cannot unmarshal {what} into Go (struct field .*|value) of type {re.escape(go_type)}"
    )
    assert status == 400
    assert re.fullmatch(wanted, error), error


def test_a_refused_update_of_a_toxic_has_set_the_attributes_that_fitted(fresh: Server, proxy: str) -> None:
    changes = {"attributes": {"latency": 77, "jitter": "x"}, "toxicity": 0.5}
    assert refused(fresh, "PATCH", f"{proxy}/toxics/t", changes)[0] == 400
    after = fresh.call("GET", f"{proxy}/toxics/t").json
    assert (after["attributes"], after["toxicity"]) == ({"latency": 77, "jitter": 0}, 1)


def test_a_refused_update_of_a_proxy_has_changed_nothing(fresh: Server, proxy: str) -> None:
    before = fresh.call("GET", proxy).body
    assert refused(fresh, "PATCH", proxy, {"upstream": "other", "enabled": "no"})[0] == 400
    assert fresh.call("GET", proxy).body == before


ADDRESSES = {
    "nonsense": "address nonsense: missing port in address",
    "a:b:1": "address a:b:1: too many colons in address",
    "::1:0": "address ::1:0: too many colons in address",
    "[::1": "address [::1: missing ']' in address",
    "[::1]": "address [::1]: missing port in address",
    "[::1]1:2": "address [::1]1:2: missing port in address",
    "[::1]:2:3": "address [::1]:2:3: too many colons in address",
    "a]b:1": "address a]b:1: unexpected ']' in address",
    "a[b:1": "address a[b:1: unexpected '[' in address",
    "127.0.0.1:65536": "address 65536: invalid port",
    "127.0.0.1:-1": "address -1: invalid port",
    "127.0.0.1:nope": "lookup tcp/nope: unknown port",
    "127.1:0": "lookup 127.1: no such host",
    "127.0.0.01:0": "lookup 127.0.0.01: no such host",
    " :0": "lookup  : no such host",
}


@pytest.mark.parametrize(("listen", "error"), ADDRESSES.items())
def test_an_address_that_cannot_be_read_is_500(fresh: Server, proxy: str, listen: str, error: str) -> None:
    new = {"name": "x", "upstream": "u", "listen": listen}
    assert refused(fresh, "POST", "/proxies", new) == (500, f"listen tcp: {error}")
    assert refused(fresh, "GET", "/proxies/x") == (404, "proxy not found")
    assert refused(fresh, "PATCH", proxy, {"listen": listen}) == (500, error)


def test_an_address_that_is_taken_is_500_and_leaves_an_updated_proxy_disabled(fresh: Server, proxy: str) -> None:
    taken = fresh.address
    error = (500, f"listen tcp {taken}: bind: address already in use")
    assert refused(fresh, "POST", "/proxies", {"name": "x", "upstream": "u", "listen": taken}) == error
    assert refused(fresh, "PATCH", proxy, {"listen": taken}) == error
    after = fresh.call("GET", proxy).json
    assert (after["listen"], after["enabled"]) == (taken, False)
    assert refused(fresh, "POST", "/reset") == error


def test_an_address_of_another_machine_is_500(fresh: Server) -> None:
    """192.0.2.0/24 belongs to nobody (RFC 5737)."""
    status, error = refused(fresh, "POST", "/proxies", {"name": "x", "upstream": "u", "listen": "192.0.2.1:0"})
    assert (status, error) == (500, "listen tcp 192.0.2.1:0: bind: cannot assign requested address")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ([{}], "missing required field: name at proxy 1"),
        ([None], "missing required field: name at proxy 1"),
        ([{"name": "a", "upstream": "u"}, {"name": "b"}], "missing required field: upstream at proxy 2"),
    ],
)
def test_populate_creates_nothing_when_a_field_is_missing(fresh: Server, body: object, error: str) -> None:
    answer = fresh.call("POST", "/populate", body)
    assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
    assert answer.body.decode() == f'{{"error":"{error}","status":400,"proxies":null}}'
    assert fresh.call("GET", "/proxies").json == {}


@pytest.mark.parametrize("body", ["5", "{}", "[5]", '[{"name":5}]', '[{"name":"a","upstream":"u","enabled":5}]'])
def test_populate_refuses_values_of_the_wrong_type(fresh: Server, body: str) -> None:
    answer = fresh.call("POST", "/populate", body)
    assert answer.status == 400
    assert answer.json["error"].startswith("bad request body: json: cannot unmarshal ")
    assert answer.json["proxies"] is None


@pytest.mark.parametrize("path", ["/", "/none", "/proxies/", "/proxies/web/", "/proxies/web/toxics/", "/proxies/a/b/c"])
def test_unknown_paths_are_404(server: Server, path: str) -> None:
    answer = server.call("GET", path)
    assert (answer.status, answer.headers["content-type"], answer.body) == (404, TEXT, b"404 page not found\n")
    assert "x-toxiproxy-request-id" not in answer.headers


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/proxies"),
        ("DELETE", "/proxies"),
        ("HEAD", "/proxies"),
        ("OPTIONS", "/proxies/web"),
        ("PATCH", "/proxies/web/toxics"),
        ("PUT", "/proxies/web/toxics/t"),
        ("GET", "/populate"),
        ("GET", "/reset"),
        ("POST", "/version"),
    ],
)
def test_unknown_methods_are_405(server: Server, method: str, path: str) -> None:
    answer = server.call(method, path)
    assert (answer.status, answer.body, answer.headers.get("allow")) == (405, b"", None)


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("//proxies", "/proxies"),
        ("/proxies//", "/proxies/"),
        ("/proxies/./web", "/proxies/web"),
        ("/proxies/a/../web?x=1", "/proxies/web?x=1"),
        ("/proxies/a%2F..%2Fb", "/proxies/b"),
        ("//a%20b%e9(c)", "/a%20b%E9%28c%29"),
    ],
)
def test_untidy_paths_are_redirected(server: Server, path: str, location: str) -> None:
    answer = server.call("POST", path)
    assert (answer.status, answer.headers["location"], answer.body) == (301, location, b"")


def test_browsers_are_refused(server: Server) -> None:
    browser = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"}
    for method, path in (("GET", "/proxies"), ("GET", "/version"), ("POST", "/proxies"), ("GET", "/proxies/none")):
        answer = server.call(method, path, None, browser)
        assert (answer.status, answer.headers["content-type"], answer.body) == (403, TEXT, b"User agent not allowed\n")
    assert server.call("GET", "/none", None, browser).status == 404
    assert server.call("PUT", "/proxies", None, browser).status == 405
    assert server.call("GET", "/version", None, {"User-Agent": "like Mozilla/5.0"}).status == 200
