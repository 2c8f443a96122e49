"""The servers as programs: flags, the file of proxies, how they end, and how many proxies they carry."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from .servers import Kind, Server, program, running


@pytest.mark.parametrize("flag", ["-version", "--version"])
def test_version_flag(kind: Kind, flag: str) -> None:
    result = subprocess.run([*program(kind), flag], capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout == "toxiproxy-server version 2.12.0\n"


@pytest.mark.parametrize("flags", [("-seed", "7"), ("--seed=7",), ("-seed=-7",)])
def test_flags_take_one_dash_or_two_and_a_seed_that_changes_nothing(kind: Kind, flags: tuple[str, ...]) -> None:
    with running(kind, *flags) as server:
        assert server.call("GET", "/proxies").body == b"{}"


def test_an_unknown_flag_is_refused(kind: Kind) -> None:
    result = subprocess.run([*program(kind), "-nonsense"], capture_output=True, timeout=30, check=False)
    assert result.returncode == 2


def test_config_names_the_proxies_to_begin_with(kind: Kind, tmp_path: Path) -> None:
    file = tmp_path / "toxiproxy.json"
    file.write_text(json.dumps([{"name": "web", "listen": "127.0.0.1:0", "upstream": "127.0.0.1:1"}]))
    with running(kind, "-config", str(file)) as server:
        assert server.call("GET", "/proxies/web").json["enabled"] is True


@pytest.mark.parametrize("text", [None, "{malformed", "{}", '[{"name":"web"}]'])
def test_a_config_that_is_no_good_does_not_keep_the_server_from_starting(
    kind: Kind, tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "toxiproxy.json"
    if text is not None:
        file.write_text(text)
    with running(kind, f"--config={file}") as server:
        assert server.call("GET", "/proxies").json == {}


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_and_well(kind: Kind, ending: signal.Signals) -> None:
    """The real server listens first and asks for the signals after that (cmd/server/server.go): on a busy machine one
    that comes in between ends it as it ends any program."""
    well = {0} if kind == "stand-in" else {0, -ending}
    with socket.create_server(("127.0.0.1", 0)) as upstream, running(kind) as server:
        listen = server.create("web", f"127.0.0.1:{upstream.getsockname()[1]}")["listen"]
        port = int(listen.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as near:
            far, _ = upstream.accept()
            with far:
                started_s = time.monotonic()
                server.process.send_signal(ending)
                assert server.process.wait(timeout=20) in well
                assert time.monotonic() - started_s < 10
                near.settimeout(10)
                assert near.recv(1) == b""


def test_an_api_port_that_is_taken_is_an_error_that_names_it() -> None:
    """The real server logs this and stays: the stand-in does not, for nobody would read the log."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [*program("stand-in"), "-host", "127.0.0.1", "-port", address.rpartition(":")[2]]
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 1
    assert result.stderr == f"error: listen tcp {address}: bind: address already in use\n"


def test_hundreds_of_proxies_with_a_connection_each(own: Server) -> None:
    """The bound on the time is what a busy machine needs; it takes a second or two."""
    count = 300
    with socket.create_server(("127.0.0.1", 0), backlog=count) as upstream:
        address = f"127.0.0.1:{upstream.getsockname()[1]}"
        started_s = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            listens = [
                each["listen"] for each in pool.map(lambda number: own.create(f"p{number}", address), range(count))
            ]
        assert time.monotonic() - started_s < 20
        assert len(set(listens)) == count
        assert len(own.call("GET", "/proxies").json) == count
        nears = []
        try:
            for listen in listens:
                nears.append(socket.create_connection(("127.0.0.1", int(listen.rpartition(":")[2])), timeout=10))
                far, _ = upstream.accept()
                nears.append(far)
                nears[-2].sendall(b"x")
                assert far.recv(1) == b"x"
        finally:
            for each in nears:
                each.close()
        assert own.call("POST", "/reset").status == 204


def test_a_proxy_is_created_in_milliseconds_over_a_connection_that_stays_open(server: Server) -> None:
    """Where an answer waits for an acknowledgement each takes 40 ms, once TCP's quick start is over: one of the last
    that is quick shows that none has to wait.
    """
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    took_s = []
    for number in range(40):
        body = json.dumps({"name": f"quick-{number}", "listen": "127.0.0.1:0", "upstream": "127.0.0.1:1"})
        started_s = time.monotonic()
        connection.request("POST", "/proxies", body)
        assert connection.getresponse().read()
        took_s.append(time.monotonic() - started_s)
        assert server.call("DELETE", f"/proxies/quick-{number}").status == 204
    connection.close()
    assert min(took_s[-15:]) < 0.03


def test_the_port_of_the_api_is_free_again_after_the_end(kind: Kind) -> None:
    with running(kind) as server:
        port = server.port
    socket.create_server(("127.0.0.1", port)).close()
