"""The Compose project: which one is up, what of an earlier run is left, where its file is."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from docker import DockerClient
from docker.models.containers import Container

from harness.stack import StackError
from harness.stack.docker_engine import ENGINE_ERRORS, PROJECT_LABEL, SERVICE_LABEL, orphaned, owners, remove_owned
from harness.stack.processor import ROLES

PROJECT = "lockproof"
"""The project that is used when it is up (`name:` in docker-compose.yml); COMPOSE_PROJECT_NAME overrules it."""

SERVICES = ("redis", "toxiproxy", "postgres", "processor")
NETWORK = "servers"
PORTS = {"redis": 6379, "postgres": 5432, "A": 8001, "B": 8002, "C": 8003, "control": 8000, "toxiproxy": 8474}
"""The ports of the servers in their containers."""

EPHEMERAL = (
    "REDIS_PORT",
    "POSTGRES_PORT",
    "TOXIPROXY_PORT",
    "TOXIPROXY_HOST_PORTS",
    "PROCESSOR_CONTROL_PORT",
    *(f"PROCESSOR_{role}_PORT" for role in ROLES),
)
"""Empty for a project that a run brings up: it takes ports that are free."""


def compose_file() -> Path:
    """docker-compose.yml of the clone, else of the working directory. Raises StackError."""
    places = (Path(__file__).parents[2], Path.cwd())
    for place in places:
        if (file := place / "docker-compose.yml").is_file():
            return file
    raise StackError(f"no docker-compose.yml in {' or '.join(map(str, places))}: run in a clone of lockproof")


def up_environment(owner: str) -> dict[str, str]:
    """What `docker compose up` of a run's own project gets.

    The harness asks the servers themselves whether they are ready: the engine's way of asking, made frequent enough,
    costs nearly half a processor.
    """
    return {**os.environ, **dict.fromkeys(EPHEMERAL, ""), "HEALTH_INTERVAL": "60s", "LOCKPROOF_OWNER": owner}


def running(client: DockerClient, project: str) -> dict[str, Container]:
    """The containers of a project that is up, by service; empty when none is. Raises StackError when half of it is."""
    found = {
        container.labels[SERVICE_LABEL]: container
        for container in client.containers.list(all=True, filters={"label": f"{PROJECT_LABEL}={project}"})
        if container.labels.get(SERVICE_LABEL) in SERVICES
    }
    down = [service for service in SERVICES if service not in found or found[service].status != "running"]
    if not down:
        return found
    if len(down) < len(SERVICES):
        raise StackError(
            f"the Compose project {project} is not wholly up, {', '.join(down)} missing or not running: "
            f"`docker compose -p {project} up --wait`, or `docker compose -p {project} down` to have one brought up"
        )
    return {}


def remove_orphans(client: DockerClient) -> None:
    """Removes what runs have left that were killed together with their reapers."""
    for label in owners(client):
        if orphaned(label):
            remove_owned(client, label)


def in_use_lock(container: Container) -> Path:
    """The file that a run holds locked while it uses a project that it has not brought up."""
    return Path(tempfile.gettempdir()) / f"lockproof-{container.short_id}.lock"


class Deaths:
    """Listens to the engine for the end of shared servers."""

    def __init__(self, client: DockerClient, containers: Mapping[str, Container]) -> None:
        self.first: str | None = None
        self._names = {container.id: name for name, container in containers.items()}
        self._events = client.events(
            decode=True, filters={"type": "container", "event": ["die"], "container": list(self._names)}
        )
        self._stopped = False
        self._thread = threading.Thread(target=self._listen, name="container-deaths", daemon=True)
        self._thread.start()
        for name, container in containers.items():  # whoever died before we listened
            container.reload()
            if container.status != "running":
                self._died(name, container.attrs["State"]["ExitCode"])

    def _listen(self) -> None:
        try:
            for event in self._events:
                self._died(self._names[event["id"]], event["Actor"]["Attributes"].get("exitCode"))
        except (*ENGINE_ERRORS, OSError, ValueError) as error:
            if not self._stopped:
                self.first = self.first or f"the Docker Engine is gone: {error}"
            return
        if not self._stopped:
            self.first = self.first or "the Docker Engine is gone"

    def _died(self, name: str, status: object) -> None:
        self.first = self.first or f"{name} ended with status {status}"

    def stop(self) -> None:
        self._stopped = True
        self._events.close()
        self._thread.join(5)
