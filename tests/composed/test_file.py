"""What docker-compose.yml promises, read from what Compose makes of it: no engine is needed."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from harness.stack.project import PORTS, SERVICES, compose_file, up_environment


def resolved(**env: str) -> dict[str, Any]:
    plain = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    argv = ["docker", "compose", "--file", str(compose_file()), "--profile", "replica", "config", "--format", "json"]
    try:
        done = subprocess.run(argv, env={**plain, **env}, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no docker command on PATH")
    if "is not a docker command" in done.stderr or "unknown flag: --file" in done.stderr:
        pytest.skip("Compose v2 is not installed")
    assert done.returncode == 0, done.stderr
    config: dict[str, Any] = json.loads(done.stdout)
    return config


def test_every_service_says_whether_it_is_healthy() -> None:
    services = resolved()["services"]
    assert set(services) == {*SERVICES, "redis-replica"}
    for name, service in services.items():
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL"), name


def test_every_port_is_published_on_loopback_only() -> None:
    for name, service in resolved()["services"].items():
        assert service["ports"], name
        assert {port["host_ip"] for port in service["ports"]} == {"127.0.0.1"}, name


def test_no_container_is_privileged_or_gets_the_engine_s_socket_or_the_host_s_network() -> None:
    for name, service in resolved()["services"].items():
        assert not service.get("privileged"), name
        assert not service.get("volumes"), name
        assert not service.get("network_mode"), name
        assert not service.get("cap_add"), name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_every_public_image_is_pinned_to_a_version() -> None:
    for name, service in resolved()["services"].items():
        if name != "processor":  # built from this clone
            assert service["image"].rpartition(":")[2][0].isdigit(), name


@pytest.mark.parametrize("service", SERVICES)
def test_every_image_can_be_replaced_by_a_variable(service: str) -> None:
    mine = {f"{service.upper()}_IMAGE": "example/mine:1"}
    assert resolved(**mine)["services"][service]["image"] == "example/mine:1"


def test_the_replica_takes_the_same_image_as_the_server_under_test() -> None:
    services = resolved(REDIS_IMAGE="example/mine:1")["services"]
    assert services["redis-replica"]["image"] == services["redis"]["image"] == "example/mine:1"


def test_what_steers_the_servers_is_on_a_network_that_no_server_under_test_is_on() -> None:
    services = resolved()["services"]
    steering = {name for name in services["toxiproxy"]["networks"] if name != "servers"}
    steering |= {name for name in services["processor"]["networks"] if name != "servers"}
    assert len(steering) == 2
    for name in ("redis", "redis-replica", "postgres"):
        assert set(services[name]["networks"]) == {"servers"}
    assert "-host=toxiproxy-api" in services["toxiproxy"]["command"]
    assert "processor-control:8000" in services["processor"]["command"]


def test_ports_move_with_their_variables() -> None:
    services = resolved(REDIS_PORT="7001", TOXIPROXY_PORTS="30000-30003")["services"]
    assert services["redis"]["ports"][0]["published"] == "7001"
    listeners = [port for port in services["toxiproxy"]["ports"] if port["target"] != PORTS["toxiproxy"]]
    assert {(port["published"], port["target"]) for port in listeners} == {(str(n), n) for n in range(30000, 30004)}


def test_a_project_of_a_run_s_own_takes_no_port_that_somebody_may_want() -> None:
    for name, service in resolved(**{k: v for k, v in up_environment("x").items() if "IMAGE" not in k})[
        "services"
    ].items():
        if name in SERVICES:
            assert not [port for port in service["ports"] if port.get("published")], name


def test_a_project_brought_up_by_hand_belongs_to_no_run() -> None:
    config = resolved()
    for thing in (*config["services"].values(), *config["networks"].values()):
        assert thing["labels"] == {"lockproof.owner": ""}
