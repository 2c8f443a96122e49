"""--harness-setup: what goes wrong with it is told as what it was."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from core.conftest import Loop
from harness import setup_hook
from harness.crew import crews_for
from harness.launcher import Keeper
from harness.processes import HarnessError
from harness.setup_hook import SetupHook
from harness.stack.redis import SHARED, LocalRedis
from harness.subject import Job, Subject

JOB = Job("redis://127.0.0.1:1/0", "http://127.0.0.1:1", None, "cus-1", "inv-1", 4200, "EUR", 1000, "A")


def fails(loop: Loop, cwd: Path, *command: str, beside_redis: bool = False) -> str:
    """The words of the error that a setup ends with; beside_redis: its REDIS_URL is that of a server for many."""

    async def whole() -> str:
        keeper = await Keeper.launch()
        try:
            crews = await crews_for([Subject("--harness-setup", "command", command)], keeper, str(cwd))
            server = LocalRedis(keeper, cwd / "redis", databases=2, options=SHARED, own=False)
            if beside_redis:
                await server.start()
            with pytest.raises(HarnessError) as raised:
                await SetupHook(crews["--harness-setup"])(replace(JOB, redis_url=server.url(*server.address, 1)))
            await server.disconnect()
            return str(raised.value)
        finally:
            keeper.shut_down()

    words: str = loop(whole())
    return words


def test_a_setup_that_hangs_is_ended_and_said_to_hang(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said that it cannot be started: a timeout is an OSError too."""
    monkeypatch.setattr(setup_hook, "SETUP_TIMEOUT_S", 0.2)
    assert "--harness-setup sleep 600 did not end within" in fails(loop, tmp_path, "sleep", "600")


def test_a_setup_that_is_no_program_cannot_be_started(loop: Loop, tmp_path: Path) -> None:
    assert "--harness-setup ./migrate cannot be started" in fails(loop, tmp_path, "./migrate")


def test_what_a_failed_setup_printed_is_told(loop: Loop, tmp_path: Path) -> None:
    told = fails(loop, tmp_path, "sh", "-c", "echo no such table; exit 3")
    assert "ended with status 3" in told
    assert "no such table" in told


FLUSHALL = "import os, redis; redis.Redis.from_url(os.environ['REDIS_URL']).flushall()"


def test_a_setup_that_would_empty_everybodys_redis_is_told_what_to_do(loop: Loop, tmp_path: Path) -> None:
    told = fails(loop, tmp_path, sys.executable, "-c", FLUSHALL, beside_redis=True)
    assert "unknown command 'FLUSHALL'" in told
    assert "there is no FLUSHALL; FLUSHDB empties" in told
