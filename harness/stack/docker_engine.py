"""The Docker Engine, for what the composed stack needs of it; and who owns a container, so that none is left behind.

What a run brings up carries the label OWNER with the run's lock file. The run holds that lock for as long as it lives,
however it ends; what bears the label of a lock that nobody holds is removed (by the run's reaper, see reaper.py, and
where that was killed too, by the next run).
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests
from docker.models.containers import Container

from harness.stack import Address, StackError

OWNER = "lockproof.owner"
"""The label of everything that a run has brought up: HOST:FILE, the file being the one the run holds locked."""

PROJECT_LABEL = "com.docker.compose.project"
SERVICE_LABEL = "com.docker.compose.service"
_TIMEOUT_S = 60
ENGINE_ERRORS = (docker.errors.DockerException, requests.RequestException)


def connect() -> docker.DockerClient:
    """The engine that the docker command would use. Raises StackError when none answers."""
    try:
        client = docker.from_env(timeout=_TIMEOUT_S)
        client.ping()
    except ENGINE_ERRORS as error:
        raise StackError(
            f"no Docker Engine answers ({error}): start Docker, or run with --harness-stack local"
        ) from error
    return client


def published(container: Container, port: int) -> Address:
    """Where a container's port is on this host. Raises StackError when it is not published."""
    bound = container.attrs["NetworkSettings"]["Ports"].get(f"{port}/tcp")
    if not bound:
        raise StackError(f"container {container.name} does not publish its port {port}")
    host = bound[0]["HostIp"]
    return ("127.0.0.1" if host in ("", "0.0.0.0", "::") else host), int(bound[0]["HostPort"])


def own_address(container: Container, network: str) -> str | None:
    """A container's address on one of its networks, None where it is not on that."""
    found = container.attrs["NetworkSettings"]["Networks"].get(network) or {}
    return found.get("IPAddress") or None


def published_ports(container: Container) -> dict[int, Address]:
    """All ports of a container that are published, by its own number."""
    ports = container.attrs["NetworkSettings"]["Ports"]
    return {int(name.split("/")[0]): published(container, int(name.split("/")[0])) for name in ports if ports[name]}


def environment(container: Container) -> dict[str, str]:
    """The environment that a container was created with."""
    return dict(entry.split("=", 1) for entry in container.attrs["Config"]["Env"] or [] if "=" in entry)


def log_of(container: Container) -> str:
    """The end of what a container has printed."""
    log: bytes = container.logs(tail=20)
    return log.decode(errors="replace")


def visible_pid(container: Container) -> int | None:
    """The container's first process as this machine numbers it; None where it is in another one (Docker Desktop)."""
    pid = container.attrs["State"].get("Pid") or 0
    try:
        ours = container.id in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return None
    return pid if ours else None


@contextmanager
def locked(path: Path, *, remove: bool = False) -> Iterator[bool]:
    """Holds a file locked; yields whether that was possible (False: another process has it).

    remove: deletes the file at the end. Whoever waited at the deleted one finds that out and opens the new one.
    """
    with ExitStack() as opened:
        while True:
            file = opened.enter_context(path.open("a"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    break
        yield True
        if remove:
            path.unlink()


def owner_label(lock: Path) -> str:
    return f"{socket.gethostname()}:{lock}"


def orphaned(label: str) -> bool:
    """Whether the run that an OWNER label names is over. Another machine's run is never taken to be."""
    host, _, path = label.partition(":")
    if not path or host != socket.gethostname():
        return False
    if not Path(path).exists():
        return True
    try:
        with locked(Path(path)) as free:
            return free
    except OSError:
        return False  # another user's: theirs to remove


def owners(client: docker.DockerClient) -> set[str]:
    """The OWNER labels of all containers and networks there are."""
    labelled = {"label": OWNER}
    found = [c.labels for c in client.containers.list(all=True, filters=labelled, ignore_removed=True)]
    found += [network.attrs.get("Labels") or {} for network in client.networks.list(filters=labelled)]
    return {labels[OWNER] for labels in found if labels.get(OWNER)}


def remove_owned(client: docker.DockerClient, label: str) -> int:
    """Removes all containers of one owner with their anonymous volumes, then its networks. Returns how many."""
    mine = {"label": f"{OWNER}={label}"}
    containers = client.containers.list(all=True, filters=mine, ignore_removed=True)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(_remove, containers))
    networks = client.networks.list(filters=mine)
    for network in networks:
        _gone_is_fine(network.remove)
    return len(containers) + len(networks)


def _remove(container: Container) -> None:
    _gone_is_fine(container.remove, force=True, v=True)


def _gone_is_fine(call: Any, **arguments: Any) -> None:
    try:
        call(**arguments)
    except docker.errors.NotFound:
        pass
    except docker.errors.APIError as error:
        if error.status_code != 409:  # 409: somebody is removing it already
            raise
