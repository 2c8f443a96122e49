"""Every endpoint: what it answers when all is well, to the byte."""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest

from .servers import Answer, Server

JSON = "application/json"


@pytest.fixture
def proxy(fresh: Server) -> str:
    """The path of a proxy that listens and leads nowhere."""
    fresh.create("web")
    return "/proxies/web"


def refuses(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def exact(answer: Answer) -> tuple[int, str | None, str]:
    return answer.status, answer.headers.get("content-type"), answer.body.decode()


def test_version(server: Server) -> None:
    assert exact(server.call("GET", "/version")) == (
        200,
        "application/json;charset=utf-8",
        '{"version": "2.12.0"}\n',
    )


def test_no_proxies(fresh: Server) -> None:
    assert exact(fresh.call("GET", "/proxies")) == (200, JSON, "{}")


def test_a_created_proxy_is_shown_with_the_port_it_got(fresh: Server) -> None:
    created = fresh.call("POST", "/proxies", {"name": "web", "listen": "127.0.0.1:0", "upstream": "127.0.0.1:1"})
    status, media_type, body = exact(created)
    port = re.fullmatch(
        r'\{"name":"web","listen":"127\.0\.0\.1:(\d+)","upstream":"127\.0\.0\.1:1","enabled":true,"Logger":\{\},"toxics":\[\]\}',
        body,
    )
    assert (status, media_type) == (201, JSON)
    assert port
    assert int(port[1]) > 0
    assert exact(fresh.call("GET", "/proxies/web")) == (200, JSON, body)
    assert exact(fresh.call("GET", "/proxies")) == (200, JSON, f'{{"web":{body}}}')


def test_proxies_are_listed_by_name(fresh: Server) -> None:
    for name in ("b", "a", "C", "é", "a-"):
        fresh.create(name, enabled=False)
    assert list(fresh.call("GET", "/proxies").json) == ["C", "a", "a-", "b", "é"]


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        ("127.0.0.1:0", r"127\.0\.0\.1:\d+"),
        ("127.0.0.1:", r"127\.0\.0\.1:\d+"),
        ("localhost:0", r"127\.0\.0\.1:\d+"),
        ("[127.0.0.1]:0", r"127\.0\.0\.1:\d+"),
        ("[::ffff:127.0.0.1]:0", r"127\.0\.0\.1:\d+"),
        ("127.0.0.1:+0", r"127\.0\.0\.1:\d+"),
    ],
)
def test_listen_is_shown_as_the_address_it_became(fresh: Server, asked: str, got: str) -> None:
    created = fresh.create("web", listen=asked)
    assert re.fullmatch(got, created["listen"])
    assert not refuses(created["listen"])


def test_a_proxy_created_disabled_keeps_the_address_it_was_given(fresh: Server) -> None:
    assert fresh.create("web", enabled=False)["listen"] == "127.0.0.1:0"
    enabled = fresh.call("PATCH", "/proxies/web", {"enabled": True}).json["listen"]
    assert enabled != "127.0.0.1:0"
    disabled = fresh.call("PATCH", "/proxies/web", {"enabled": False}).json
    assert (disabled["listen"], disabled["enabled"]) == (enabled, False)
    assert fresh.call("PATCH", "/proxies/web", {"enabled": True}).json["listen"] == enabled


def test_field_names_are_matched_in_any_case_and_unknown_ones_passed_over(fresh: Server) -> None:
    body = '{"NAME":"web","Upstream":"u:1","LiSteN":"127.0.0.1:0","toxics":7,"more":{"x":[1,{}]}, "enabled":null}'
    answer = fresh.call("POST", "/proxies", body)
    assert (answer.status, answer.json["name"], answer.json["enabled"]) == (201, "web", True)


def test_the_last_of_a_repeated_field_wins_and_what_follows_the_body_is_ignored(fresh: Server) -> None:
    body = '{"name":"one","name":"two","name":null,"upstream":"u","enabled":false}{"name":"three'
    assert fresh.call("POST", "/proxies", body).json["name"] == "two"


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_proxy_is_updated(fresh: Server, proxy: str, method: str) -> None:
    before = fresh.call("GET", proxy).json
    answer = fresh.call(method, proxy, {"upstream": "127.0.0.1:2", "name": "other"})
    assert (answer.status, answer.headers["content-type"]) == (200, JSON)
    assert answer.json == {**before, "upstream": "127.0.0.1:2"}
    answer = fresh.call(method, proxy, {"enabled": False})
    assert answer.json == {**before, "upstream": "127.0.0.1:2", "enabled": False}
    assert refuses(before["listen"])


def test_an_empty_update_changes_nothing(fresh: Server, proxy: str) -> None:
    before = fresh.call("GET", proxy).body
    for body in ("{}", "null", '{"enabled":null,"listen":null}'):
        assert fresh.call("PATCH", proxy, body).body == before


def test_a_proxy_is_deleted(fresh: Server, proxy: str) -> None:
    listen = fresh.call("GET", proxy).json["listen"]
    assert exact(fresh.call("DELETE", proxy)) == (204, None, "")
    assert fresh.call("GET", proxy).status == 404
    assert refuses(listen)


DEFAULTS = {
    "latency": {"latency": 0, "jitter": 0},
    "bandwidth": {"rate": 0},
    "slow_close": {"delay": 0},
    "timeout": {"timeout": 0},
    "reset_peer": {"timeout": 0},
    "slicer": {"average_size": 0, "size_variation": 0, "delay": 0},
    "limit_data": {"bytes": 0},
    "noop": {},
}


@pytest.mark.parametrize("type_name", DEFAULTS)
def test_a_toxic_is_named_after_type_and_stream_and_its_attributes_are_zero(
    fresh: Server, proxy: str, type_name: str
) -> None:
    body = (
        f'{{"attributes":{compact(DEFAULTS[type_name])},"name":"{type_name}_downstream","type":"{type_name}",'
        '"stream":"downstream","toxicity":1}'
    )
    assert exact(fresh.call("POST", f"{proxy}/toxics", {"type": type_name})) == (200, JSON, body)
    assert exact(fresh.call("GET", f"{proxy}/toxics/{type_name}_downstream")) == (200, JSON, body)
    assert exact(fresh.call("GET", f"{proxy}/toxics")) == (200, JSON, f"[{body}]")
    assert fresh.call("GET", proxy).body.endswith(f'"toxics":[{body}]}}'.encode())
    assert exact(fresh.call("DELETE", f"{proxy}/toxics/{type_name}_downstream")) == (204, None, "")
    assert exact(fresh.call("GET", f"{proxy}/toxics")) == (200, JSON, "[]")


@pytest.mark.parametrize("type_name", DEFAULTS)
@pytest.mark.parametrize("stream", ["upstream", "downstream"])
def test_every_attribute_of_a_toxic_is_kept(fresh: Server, proxy: str, type_name: str, stream: str) -> None:
    attributes = {name: value for value, name in enumerate(DEFAULTS[type_name], start=7)}
    given = {"name": "t", "type": type_name, "stream": stream, "toxicity": 0.25, "attributes": attributes}
    assert fresh.call("POST", f"{proxy}/toxics", given).json == given
    changed = dict.fromkeys(attributes, 99)
    answer = fresh.call("PATCH", f"{proxy}/toxics/t", {"attributes": changed, "toxicity": 0.75})
    assert (answer.status, answer.json) == (200, {**given, "attributes": changed, "toxicity": 0.75})


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_an_update_of_a_toxic_leaves_what_it_does_not_name(fresh: Server, proxy: str, method: str) -> None:
    given = {"name": "t", "type": "latency", "stream": "upstream", "toxicity": 0.5, "attributes": {"latency": 5}}
    fresh.call("POST", f"{proxy}/toxics", given)
    answer = fresh.call(method, f"{proxy}/toxics/t", {"attributes": {"jitter": 3}, "type": "slicer", "name": "u"})
    assert answer.json == {**given, "attributes": {"latency": 5, "jitter": 3}}


def test_toxics_are_listed_upstream_first_and_in_the_order_they_were_added(fresh: Server, proxy: str) -> None:
    for name, stream in (("d1", "downstream"), ("u1", "upstream"), ("d0", "downstream"), ("u0", "upstream")):
        fresh.call("POST", f"{proxy}/toxics", {"name": name, "type": "noop", "stream": stream})
    assert [toxic["name"] for toxic in fresh.call("GET", f"{proxy}/toxics").json] == ["u1", "u0", "d1", "d0"]


def test_a_stream_is_understood_in_any_case_and_shown_as_given(fresh: Server, proxy: str) -> None:
    answer = fresh.call("POST", f"{proxy}/toxics", {"type": "latency", "stream": "UpStream"})
    assert (answer.json["stream"], answer.json["name"]) == ("UpStream", "latency_UpStream")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("0.1", "0.1"),
        ("1", "1"),
        ("1.0", "1"),
        ("0", "0"),
        ("-0.0", "-0"),
        ("1e-9", "1e-9"),
        ("0.000001", "0.000001"),
        ("0.123456789", "0.12345679"),
        ("16777217", "16777216"),
        ("1e20", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("-3.33333333333", "-3.3333333"),
        ("3.4028235e38", "3.4028235e+38"),
        ("1e-46", "0"),
    ],
)
def test_toxicity_is_a_float_of_32_bits(fresh: Server, proxy: str, given: str, shown: str) -> None:
    answer = fresh.call("POST", f"{proxy}/toxics", f'{{"type":"noop","toxicity":{given}}}')
    assert answer.body.decode().endswith(f'"toxicity":{shown}}}')


def test_a_name_may_be_anything_that_fits_a_path(fresh: Server) -> None:
    fresh.create("a b%é?")
    assert fresh.call("GET", "/proxies/a%20b%25%c3%a9%3f").json["name"] == "a b%é?"


def test_a_proxy_whose_name_has_a_slash_is_out_of_reach(own: Server) -> None:
    own.create("a/b")
    assert own.call("GET", "/proxies/a%2Fb").status == 404
    assert own.call("DELETE", "/proxies/a/b").status == 404
    assert list(own.call("GET", "/proxies").json) == ["a/b"]


def test_text_is_escaped_as_go_does_it(own: Server) -> None:
    name = b'<&>\\u2028\x7f\\b\\f\\u0001\\t\\"\\\\\\/'
    upstream = b"\\ud800\\ud834\\udd1e\xff\xe2\x82"
    body = b'{"name":"%s","upstream":"%s","enabled":false}' % (name, upstream)
    shown = own.call("POST", "/proxies", body).body.decode()
    no_text = "\N{REPLACEMENT CHARACTER}"
    assert shown.startswith('{"name":"\\u003c\\u0026\\u003e\\u2028\x7f\\b\\f\\u0001\\t\\"\\\\/","listen":""')
    assert f'"upstream":"{no_text}\N{MUSICAL SYMBOL G CLEF}{3 * no_text}"' in shown


def test_populate_creates_and_says_what_it_created(fresh: Server) -> None:
    given = [
        {"name": "one", "upstream": "u:1", "listen": "127.0.0.1:0"},
        {"name": "two", "upstream": "u:2", "listen": "127.0.0.1:0", "enabled": False},
    ]
    answer = fresh.call("POST", "/populate", given)
    assert (answer.status, answer.headers["content-type"]) == (201, JSON)
    assert [(each["name"], each["enabled"]) for each in answer.json["proxies"]] == [("one", True), ("two", False)]
    assert answer.body.startswith(b'{"proxies":[{"name":"one",')
    assert set(fresh.call("GET", "/proxies").json) == {"one", "two"}


def test_populate_leaves_a_proxy_of_the_same_addresses_as_it_is(fresh: Server) -> None:
    listen = fresh.create("web")["listen"]
    fresh.call("POST", "/proxies/web/toxics", {"type": "latency"})
    fresh.call("PATCH", "/proxies/web", {"enabled": False})
    before = fresh.call("GET", "/proxies/web").json
    given = [{"name": "web", "upstream": "127.0.0.1:1", "listen": listen, "enabled": True}]
    assert fresh.call("POST", "/populate", given).json == {"proxies": [before]}


def test_populate_replaces_a_proxy_of_other_addresses(fresh: Server) -> None:
    listen = fresh.create("web")["listen"]
    fresh.call("POST", "/proxies/web/toxics", {"type": "latency"})
    replaced = fresh.call("POST", "/populate", [{"name": "web", "upstream": "other:1", "listen": listen}]).json
    assert replaced["proxies"][0] | {"Logger": {}} == {
        "name": "web",
        "upstream": "other:1",
        "listen": listen,
        "enabled": True,
        "toxics": [],
        "Logger": {},
    }


@pytest.mark.parametrize("nothing", ["[]", "null"])
def test_populate_with_nothing(fresh: Server, nothing: str) -> None:
    assert exact(fresh.call("POST", "/populate", nothing)) == (201, JSON, '{"proxies":null}')


def test_populate_stops_at_the_first_that_cannot_listen_and_keeps_the_ones_before(fresh: Server) -> None:
    given = [
        {"name": "one", "upstream": "u:1", "listen": "127.0.0.1:0"},
        {"name": "two", "upstream": "u:2", "listen": "nonsense"},
        {"name": "three", "upstream": "u:3", "listen": "127.0.0.1:0"},
    ]
    answer = fresh.call("POST", "/populate", given)
    assert (answer.status, answer.headers["content-type"]) == (500, JSON)
    assert answer.json["error"] == "listen tcp: address nonsense: missing port in address"
    assert [each["name"] for each in answer.json["proxies"]] == ["one"]
    assert list(fresh.call("GET", "/proxies").json) == ["one"]


def test_reset_enables_every_proxy_and_takes_all_toxics_away(fresh: Server) -> None:
    listens = [fresh.create(name)["listen"] for name in ("one", "two")]
    fresh.call("PATCH", "/proxies/one", {"enabled": False})
    for stream in ("upstream", "downstream"):
        for type_name in ("latency", "timeout"):
            fresh.call("POST", "/proxies/two/toxics", {"type": type_name, "stream": stream})
    assert exact(fresh.call("POST", "/reset", "junk")) == (204, None, "")
    state: dict[str, Any] = fresh.call("GET", "/proxies").json
    assert [(each["enabled"], each["toxics"]) for each in state.values()] == [(True, []), (True, [])]
    assert [state[name]["listen"] for name in ("one", "two")] == listens
    assert not any(refuses(listen) for listen in listens)


def test_reset_releases_what_toxics_hold_on_live_connections(fresh: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        listen = fresh.create("web", f"127.0.0.1:{upstream.getsockname()[1]}")["listen"]
        held = {"type": "bandwidth", "stream": "upstream", "attributes": {"rate": 0}}
        assert fresh.call("POST", "/proxies/web/toxics", held).status == 200
        with socket.create_connection(("127.0.0.1", int(listen.rpartition(":")[2]))) as near:
            far, _ = upstream.accept()
            with far:
                near.sendall(b"held")
                far.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    far.recv(10)
                assert fresh.call("POST", "/reset").status == 204
                far.settimeout(10)
                assert far.recv(10) == b"held"


def test_every_answer_of_an_endpoint_has_a_request_id(server: Server) -> None:
    ids = [
        server.call("GET", path).headers["x-toxiproxy-request-id"] for path in ("/version", "/version", "/proxies/no")
    ]
    assert len(set(ids)) == 3
    assert all(re.fullmatch("[0-9a-v]{20}", each) for each in ids)


def test_there_are_no_metrics_unless_asked_for(server: Server) -> None:
    assert server.call("GET", "/metrics").status == 404


def compact(attributes: dict[str, int]) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in attributes.items()) + "}"
