"""The public clients, against either server: toxiproxy-python and toxiproxy-cli."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable

import pytest
from toxiproxy import Toxiproxy
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from .servers import Server, cli_program

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def client(fresh: Server, monkeypatch: pytest.MonkeyPatch) -> Toxiproxy:
    """The address of toxiproxy-python's server is state of a class: it is put back."""
    monkeypatch.setattr(APIConsumer, "host", "127.0.0.1")
    monkeypatch.setattr(APIConsumer, "port", fresh.port)
    return Toxiproxy()


@pytest.fixture
def cli(fresh: Server) -> Cli:
    command = cli_program()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [command, "--host", f"http://{fresh.address}", *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    return run


def test_python_client_sees_the_server_and_its_version(client: Toxiproxy) -> None:
    assert client.running()
    assert client.version() == b'{"version": "2.12.0"}\n'


def test_python_client_creates_finds_and_destroys_proxies(client: Toxiproxy) -> None:
    proxy = client.create(name="web", upstream="127.0.0.1:1")
    assert proxy.enabled
    assert int(proxy.listen.rpartition(":")[2]) > 0
    assert set(client.proxies()) == {"web"}
    assert client.get_proxy("web").listen == proxy.listen
    with pytest.raises(ProxyExists):
        client.create(name="web", upstream="127.0.0.1:1")
    assert client.destroy(proxy)
    assert client.get_proxy("web") is None
    with pytest.raises(NotFound):
        proxy.destroy()


def test_python_client_sets_reads_and_removes_toxics(client: Toxiproxy) -> None:
    proxy = client.create(name="web", upstream="127.0.0.1:1")
    proxy.add_toxic(type="latency", attributes={"latency": 100, "jitter": 5}, toxicity=0.5)
    proxy.add_toxic(name="held", type="bandwidth", stream="upstream", attributes={"rate": 0})
    toxics = proxy.toxics()
    assert set(toxics) == {"latency_downstream", "held"}
    latency = toxics["latency_downstream"]
    assert (latency.type, latency.stream, latency.toxicity) == ("latency", "downstream", 0.5)
    assert latency.attributes == {"latency": 100, "jitter": 5}
    with pytest.raises(InvalidToxic):
        proxy.add_toxic(type="none")
    with pytest.raises(ProxyExists):
        proxy.add_toxic(type="latency")
    assert proxy.destroy_toxic("held")
    assert proxy.get_toxic("held") is None
    with pytest.raises(NotFound):
        proxy.destroy_toxic("held")


def test_python_client_takes_a_proxy_down_and_up(client: Toxiproxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        proxy = client.create(name="web", upstream=f"127.0.0.1:{upstream.getsockname()[1]}")
        address = ("127.0.0.1", int(proxy.listen.rpartition(":")[2]))
        with proxy.down(), pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)
        socket.create_connection(address, timeout=5).close()


def test_python_client_resets(client: Toxiproxy) -> None:
    proxy = client.create(name="web", upstream="127.0.0.1:1", enabled=False)
    proxy.add_toxic(type="timeout")
    assert client.reset()
    assert client.get_proxy("web").enabled
    assert proxy.toxics() == {}


def test_python_client_populates(client: Toxiproxy) -> None:
    given = [
        {"name": "one", "upstream": "127.0.0.1:1", "listen": "127.0.0.1:0"},
        {"name": "two", "upstream": "127.0.0.1:2", "listen": "127.0.0.1:0"},
    ]
    assert [proxy.name for proxy in client.populate(given)] == ["one", "two"]
    client.destroy_all()
    assert client.proxies() == {}


def test_cli_creates_lists_toggles_and_deletes_a_proxy(fresh: Server, cli: Cli) -> None:
    created = cli("create", "--listen", "127.0.0.1:0", "--upstream", "127.0.0.1:1", "web")
    assert (created.returncode, created.stdout) == (0, "Created new proxy web\n")
    listen = fresh.call("GET", "/proxies/web").json["listen"]
    listed = cli("list")
    assert (listed.returncode, listed.stdout) == (0, f"web\t{listen}\t127.0.0.1:1\tenabled\t0\n")
    assert cli("toggle", "web").stdout == "Proxy web is now disabled\n"
    assert fresh.call("GET", "/proxies/web").json["enabled"] is False
    assert cli("toggle", "web").stdout == "Proxy web is now enabled\n"
    assert fresh.call("GET", "/proxies/web").json["listen"] == listen
    assert cli("delete", "web").stdout == "Deleted proxy web\n"
    assert cli("list").stdout == ""


def test_cli_adds_updates_inspects_and_removes_a_toxic(fresh: Server, cli: Cli) -> None:
    fresh.create("web")
    added = cli("toxic", "add", "-t", "latency", "-n", "slow", "-a", "latency=1000", "-a", "jitter=50", "-u", "web")
    assert (added.returncode, added.stdout) == (0, "Added upstream latency toxic 'slow' on proxy 'web'\n")
    assert cli("inspect", "web").stdout == (
        "slow\ttype=latency\tstream=upstream\ttoxicity=1.00\tattributes=[\tjitter=50\tlatency=1000\t]\n"
    )
    updated = cli("toxic", "update", "-n", "slow", "--toxicity", "0.25", "-a", "jitter=5", "web")
    assert (updated.returncode, updated.stdout) == (0, "Updated toxic 'slow' on proxy 'web'\n")
    toxic = fresh.call("GET", "/proxies/web/toxics/slow").json
    assert (toxic["toxicity"], toxic["attributes"]) == (0.25, {"latency": 1000, "jitter": 5})
    assert cli("toxic", "remove", "-n", "slow", "web").stdout == "Removed toxic 'slow' on proxy 'web'\n"
    assert fresh.call("GET", "/proxies/web/toxics").json == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("inspect", "none"), "Failed to retrieve proxy none: HTTP 404: proxy not found"),
        (
            ("create", "-l", "127.0.0.1:0", "-u", "u", "web"),
            "Failed to create proxy: Create: HTTP 409: proxy already exists",
        ),
        (
            ("create", "-l", "nonsense", "-u", "u", "x"),
            "HTTP 500: listen tcp: address nonsense: missing port in address",
        ),
        (("toxic", "add", "-t", "none", "web"), "HTTP 400: invalid toxic type"),
        (("toxic", "remove", "-n", "none", "web"), "HTTP 404: toxic not found"),
        (
            ("toxic", "add", "-t", "latency", "-a", "latency=1.5", "web"),
            "HTTP 400: bad request body: json: cannot unmarshal",
        ),
    ],
)
def test_cli_passes_on_what_the_server_refuses(fresh: Server, cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    fresh.create("web")
    result = cli(*arguments)
    assert result.returncode == 1
    assert said in result.stderr
