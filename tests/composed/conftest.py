"""One composed stack, and one event loop, for all tests here that do not break it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator

import pytest
from docker import DockerClient
from docker.errors import ImageNotFound

from harness.launcher import Keeper
from harness.stack import StackError
from harness.stack.compose import ComposeStack
from harness.stack.docker_engine import connect
from harness.stack.project import SERVICES, compose_file


@pytest.fixture(scope="session")
def client() -> Iterator[DockerClient]:
    """An engine that has the images. Skips where there is none: pulling half a gigabyte is no test's business."""
    try:
        client = connect()
    except StackError as error:
        pytest.skip(str(error))
    argv = ["docker", "compose", "--file", str(compose_file()), "config", "--images", *SERVICES]
    listed = subprocess.run(argv, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip(f"Compose v2 does not work here: {listed.stderr.strip()}")
    for image in listed.stdout.split():
        try:
            client.images.get(image)
        except ImageNotFound:
            pytest.skip(f"the engine has no image {image}: docker compose pull && docker compose build")
    yield client
    client.close()


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def keeper(runner: asyncio.Runner) -> Iterator[Keeper]:
    async def launch() -> Keeper:
        return await Keeper.launch()

    keeper = runner.run(launch())
    yield keeper
    runner.run(asyncio.to_thread(keeper.shut_down))


@pytest.fixture(scope="session")
def stack(client: DockerClient, runner: asyncio.Runner, keeper: Keeper) -> Iterator[ComposeStack]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMPOSE_PROJECT_NAME", "lockproof-not-up")
        stack = ComposeStack(keeper)
        runner.run(stack.start())
    yield stack
    runner.run(stack.stop())
