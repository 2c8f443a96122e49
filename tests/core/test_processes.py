"""Processes are frozen, thawed and killed with all their descendants, and what a worker prints is kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from harness import kernel
from harness.launcher import Keeper
from harness.output import Output
from harness.processes import HarnessError, Process, freeze, kill_tree, thaw

FAMILY = """
import os, sys, threading, time
def busy():
    while True:
        sum(range(1000))
def child(role):
    with open(sys.argv[1] + "/" + role, "w") as file:
        file.write(str(os.getpid()))
    threading.Thread(target=busy, daemon=True).start()
    busy()
if os.fork() == 0:
    os.setsid()
    child("session")
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        child("orphan")
    os._exit(0)
child("parent")
"""
ROLES = ("parent", "session", "orphan")
PATIENCE_S = 60.0


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


@contextlib.asynccontextmanager
async def keeper() -> AsyncIterator[Keeper]:
    made = await Keeper.launch()
    try:
        yield made
    finally:
        made.shut_down()


async def grow(made: Keeper, directory: Path) -> tuple[Process, dict[str, int]]:
    """A process with a thread, a child in a session of its own, and an orphan in another; all of them busy."""
    process = await made.spawn([sys.executable, "-S", "-c", FAMILY, str(directory)])
    pids: dict[str, int] = {}
    while len(pids) < len(ROLES):
        for role in ROLES:
            with contextlib.suppress(OSError, ValueError):
                pids[role] = int((directory / role).read_text())
        await asyncio.sleep(0.005)
    while len(kernel.thread_states(pids["orphan"])) < 2:
        await asyncio.sleep(0.005)
    return process, pids


@contextlib.asynccontextmanager
async def family(directory: Path) -> AsyncIterator[tuple[Process, dict[str, int]]]:
    """The same, and a keeper that is nobody else's."""
    async with keeper() as made:
        yield await grow(made, directory)


def test_freezing_stops_every_thread_of_every_descendant_and_thawing_lets_them_go_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with family(tmp_path) as (process, pids):
            assert set(process.tree()) >= set(pids.values())
            stopped = await freeze(process, timeout_s=PATIENCE_S)
            assert set(stopped) >= set(pids.values())
            for pid in pids.values():
                assert set(kernel.thread_states(pid).values()) == {"T"}
            ran = kernel.ran_ns(stopped)
            await asyncio.sleep(0.05)
            assert kernel.ran_ns(stopped) == ran, "nothing of it ran meanwhile"
            thaw(process)
            while kernel.ran_ns(stopped) == ran:
                await asyncio.sleep(0.005)
            assert not kernel.all_stopped(stopped)

    run(test())


@pytest.mark.parametrize("frozen", [False, True])
def test_killing_ends_every_descendant_frozen_or_not(frozen: bool, tmp_path: Path) -> None:
    async def test() -> None:
        async with family(tmp_path) as (process, pids):
            if frozen:
                await freeze(process, timeout_s=PATIENCE_S)
            await kill_tree(process, timeout_s=PATIENCE_S)
            assert kernel.all_gone(list(pids.values()))
            assert await process.wait() == -signal.SIGKILL
            assert process.tree() == []

    run(test())


def test_the_keeper_takes_everything_with_it_frozen_or_not(tmp_path: Path) -> None:
    async def test() -> None:
        made = await Keeper.launch()
        directory = made.directory
        assert directory.is_dir()
        process = await made.spawn([sys.executable, "-S", "-c", FAMILY, str(tmp_path)])
        while len(process.tree()) < 3:
            await asyncio.sleep(0.005)
        pids = await freeze(process, timeout_s=PATIENCE_S)
        made.shut_down()
        assert kernel.all_gone(pids)
        assert not directory.exists()

    run(test())


def test_a_program_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    async def test() -> None:
        async with keeper() as made:
            with pytest.raises(OSError, match="No such file"):
                await made.spawn([str(tmp_path / "nothing")])
            (tmp_path / "data").write_text("no program")
            with pytest.raises(OSError, match="Permission denied"):
                await made.spawn([str(tmp_path / "data")])
            process = await made.spawn(["true"])
            assert await process.wait() == 0, "and the keeper goes on"

    run(test())


def test_the_end_of_a_process_is_told_with_its_status() -> None:
    async def test() -> None:
        async with keeper() as made:
            statuses = [await (await made.spawn(["sh", "-c", f"exit {n}"])).wait() for n in (0, 75, 3)]
            assert statuses == [0, 75, 3]
            process = await made.spawn(["sleep", "600"])
            process.kill(signal.SIGTERM)
            assert await process.wait() == -signal.SIGTERM

    run(test())


def test_when_the_keeper_is_killed_nothing_can_be_started_and_nobody_waits_for_ever() -> None:
    async def test() -> None:
        made = await Keeper.launch()
        process = await made.spawn(["sleep", "600"])
        os.kill(made.process.pid, signal.SIGKILL)
        await made.gone.wait()
        assert await process.wait() == -signal.SIGKILL
        while not kernel.all_gone([process.pid]):
            await asyncio.sleep(0.005)
        with pytest.raises(HarnessError, match="keeper process is gone"):
            await made.spawn(["true"])
        made.shut_down()
        assert not made.directory.exists()

    run(test())


# --- output ---


def collect(chunks: list[bytes]) -> tuple[str, list[dict[str, object]]]:
    """What is kept of an output that comes in these chunks: its log and its events."""
    events: list[dict[str, object]] = []
    kept: list[str] = []

    async def test() -> None:
        output = Output(events.append)
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[os.write(output.write_fd, view[:4096]) :]
                await asyncio.sleep(0)
                output.drain()
        kept.append(output.close())

    run(test())
    return kept[0], events


def test_events_are_read_from_lines_of_json_however_they_are_cut() -> None:
    line = json.dumps({"event": "acquired", "token": 7}).encode()
    log, events = collect([b"starting\n", line[:9], line[9:] + b"\n", b"  " + line + b"\nend"])
    assert events == [{"event": "acquired", "token": 7}] * 2
    assert log == f"starting\n{line.decode()}\n  {line.decode()}\nend"


@pytest.mark.parametrize(
    "line", [b"{nonsense\n", b"[1]\n", b'{"token": 7}\n', b'{"event": 7}\n', b"\xff\xfe{}\n", b"{}\n"]
)
def test_what_is_no_event_is_kept_as_log_alone(line: bytes) -> None:
    log, events = collect([line])
    assert events == []
    assert log == line.decode("utf-8", "replace")


def test_of_a_very_long_output_the_beginning_and_the_end_are_kept() -> None:
    log, _ = collect([b"the beginning\n", b"x" * 600_000, b"\nthe end"])
    assert log.startswith("the beginning\n")
    assert log.endswith("\nthe end")
    assert "bytes left out" in log
    assert len(log) < 300_000


def test_of_orphans_that_the_keeper_reaps_nothing_is_told(tmp_path: Path) -> None:
    """A process that got the pid of one was taken for dead, with the orphan's status, as soon as it was started."""

    async def test() -> None:
        async with keeper() as made:
            process, pids = await grow(made, tmp_path)
            told: list[int] = []
            dispatch = made._dispatch

            def listen(message: dict[str, Any]) -> None:
                told.extend([message["exit"]] if "exit" in message else [])
                dispatch(message)

            made._dispatch = listen  # type: ignore[method-assign]
            process.kill()
            assert await process.wait() == -signal.SIGKILL
            kernel.send_signal(list(pids.values()), signal.SIGKILL)
            while any(Path(f"/proc/{pid}").exists() for pid in pids.values()):
                await asyncio.sleep(0.005)
            last = await made.spawn(["true"])
            assert await last.wait() == 0
            assert told == [process.pid, last.pid]

    run(test())


def test_a_process_that_nobody_waits_for_any_more_is_known_all_the_same() -> None:
    async def test() -> None:
        async with keeper() as made:
            starting = asyncio.create_task(made.spawn(["sleep", "600"]))
            while not made._asked:
                await asyncio.sleep(0)
            starting.cancel()
            while not made.running:
                await asyncio.sleep(0.005)
            (process,) = made.running
            process.kill()
            assert await process.wait() == -signal.SIGKILL
            assert made.running == []

    run(test())
