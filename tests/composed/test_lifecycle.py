"""Who brings the stack up and takes it down: nothing of a run is left, nothing of anybody else's is touched."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import DockerClient
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from harness.launcher import Keeper
from harness.processes import python_env
from harness.stack import StackError
from harness.stack.compose import ComposeStack
from harness.stack.docker_engine import (
    OWNER,
    PROJECT_LABEL,
    SERVICE_LABEL,
    locked,
    orphaned,
    owner_label,
    owners,
    remove_owned,
)
from harness.stack.project import compose_file, remove_orphans, up_environment

RUN = """
import asyncio
from harness.launcher import Keeper
from harness.stack.compose import ComposeStack

async def main():
    stack = ComposeStack(await Keeper.launch())
    await stack.start()
    await stack.own_redis()
    print(stack.project, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def everything_of(client: DockerClient, project: str) -> list[str]:
    """What is left of a project and of its run: the containers' and networks' names."""
    mine = {"name": project}
    containers = client.containers.list(all=True, filters=mine, ignore_removed=True)
    return [thing.name for thing in (*containers, *client.networks.list(filters=mine))]


def compose(project: str, *argv: str) -> None:
    env = {**up_environment(""), "HEALTH_INTERVAL": "1s"}
    subprocess.run(
        ["docker", "compose", "--file", str(compose_file()), "--project-name", project, *argv],
        env=env,
        check=True,
        capture_output=True,
    )


@pytest.fixture
def project(client: DockerClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A project of the user's own, of that name if he brings it up."""
    name = f"lockproof-test-{secrets.token_hex(4)}"
    monkeypatch.setenv("COMPOSE_PROJECT_NAME", name)
    yield name
    compose(name, "down", "--volumes", "--timeout", "0")


def test_a_stack_brought_up_for_a_run_is_gone_after_it(
    client: DockerClient, runner: asyncio.Runner, keeper: Keeper, project: str
) -> None:
    stack = ComposeStack(keeper)

    async def up() -> None:
        await stack.start()
        await stack.own_redis()

    runner.run(up())
    assert stack.project != project
    assert len(everything_of(client, stack.project)) == 8
    runner.run(stack.stop())
    assert everything_of(client, stack.project) == []


def test_a_run_that_is_killed_leaves_nothing(client: DockerClient, project: str) -> None:
    run = subprocess.Popen([sys.executable, "-P", "-c", RUN], env=python_env(), stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    name = run.stdout.readline().strip()
    assert len(everything_of(client, name)) == 8
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    poll = Retrying(retry=retry_if_result(bool), wait=wait_fixed(0.1), stop=stop_after_delay(30))
    poll(everything_of, client, name)
    assert everything_of(client, name) == []


def test_what_a_run_left_that_was_killed_with_its_reaper_is_removed_by_the_next(
    client: DockerClient, tmp_path: Path
) -> None:
    over, running = owner_label(tmp_path / "over.lock"), owner_label(tmp_path / "running.lock")
    elsewhere = f"another-host:{tmp_path / 'over.lock'}"
    labels = (over, running, elsewhere)
    image = next(iter(client.images.list(filters={"dangling": False}))).id
    try:
        with locked(tmp_path / "running.lock"):
            for label in labels:
                client.containers.create(image, ["true"], labels={OWNER: label})
                client.networks.create(f"lockproof-test-{secrets.token_hex(4)}", labels={OWNER: label})
            remove_orphans(client)
            assert owners(client).intersection(labels) == {running, elsewhere}
    finally:
        for label in labels:
            remove_owned(client, label)


def test_a_run_is_over_when_nobody_holds_its_lock_or_the_lock_is_gone(tmp_path: Path) -> None:
    lock = tmp_path / "run.lock"
    with locked(lock):
        assert not orphaned(owner_label(lock))
    assert orphaned(owner_label(lock))
    lock.unlink()
    assert orphaned(owner_label(lock))
    assert not orphaned("another-host:/run.lock")
    assert not orphaned("")


def test_a_stack_that_is_up_is_used_by_one_run_at_a_time_and_left_up_and_clean(
    client: DockerClient, runner: asyncio.Runner, keeper: Keeper, project: str, tmp_path: Path
) -> None:
    compose(project, "up", "--detach", "--wait")
    before = sorted(everything_of(client, project))

    async def use() -> list[str]:
        stack = ComposeStack(keeper)
        await stack.start()
        try:
            assert stack.project == project
            await stack.redis.client.set("left", "behind")
            await stack.own_redis()
            assert stack.postgres is not None
            database = await stack.postgres.lease()
            with pytest.raises(StackError, match="another run uses"):
                await ComposeStack(keeper).start()
            await stack.postgres.give_back(database)
        finally:
            await stack.stop()
        again = ComposeStack(keeper)
        await again.start()
        try:
            assert await again.redis.client.dbsize() == 0
            assert again.postgres is not None
            async with await again.postgres.connect("postgres") as connection:
                rows = await (await connection.execute("SELECT datname FROM pg_database")).fetchall()
            return [name for (name,) in rows if name.startswith("lp_")]
        finally:
            await again.stop()

    assert runner.run(use()) == []
    assert sorted(everything_of(client, project)) == before
    assert all(c.status == "running" for c in client.containers.list(all=True, filters={"name": project}))


def test_a_stack_that_is_half_up_is_refused_naming_what_is_missing(
    runner: asyncio.Runner, keeper: Keeper, project: str
) -> None:
    compose(project, "up", "--detach", "redis")
    with pytest.raises(StackError, match=f"{project} is not wholly up, toxiproxy, postgres, processor missing"):
        runner.run(ComposeStack(keeper).start())


def test_a_shared_server_that_ends_is_noticed_and_named(
    client: DockerClient, runner: asyncio.Runner, keeper: Keeper, project: str
) -> None:
    async def lose_one() -> str | None:
        stack = ComposeStack(keeper)
        await stack.start()
        try:
            assert stack.died() is None
            (container,) = client.containers.list(
                filters={"label": [f"{PROJECT_LABEL}={stack.project}", f"{SERVICE_LABEL}=processor"]}
            )
            await asyncio.to_thread(container.kill)
            for _ in range(500):
                if stack.died():
                    break
                await asyncio.sleep(0.01)
            return stack.died()
        finally:
            await stack.stop()

    assert runner.run(lose_one()) == "processor ended with status 137"


def test_where_no_engine_answers_the_other_stack_is_named(
    runner: asyncio.Runner, keeper: Keeper, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    with pytest.raises(StackError, match=r"no Docker Engine answers .*--harness-stack local"):
        runner.run(ComposeStack(keeper).start())


def test_an_image_that_cannot_be_had_is_reported_with_what_compose_said(
    client: DockerClient, runner: asyncio.Runner, keeper: Keeper, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_IMAGE", "127.0.0.1:1/lockproof-test/none:1")
    stack = ComposeStack(keeper)
    with pytest.raises(StackError, match=r"docker compose up ended with status \d+:\n(.|\n)*127\.0\.0\.1:1"):
        runner.run(stack.start())
    assert everything_of(client, stack.project) == []
    assert os.environ["COMPOSE_PROJECT_NAME"] == project
