"""How long a worker waited for a CPU: what could have decided something, and no more."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from harness import kernel
from harness.processes import Process
from harness.worker import FirstMessages, Worker

PID, THREAD = 4_000_001, 4_000_002
MS = 1_000_000


def starved_ms(
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: dict[int, int],
    later: dict[int, int],
    at_end_ms: int,
    spoke: bool = True,
) -> float:
    """Of a worker that lived for a second and spoke at once: what its threads had waited, in milliseconds."""

    async def live() -> float:
        process = Process(PID)
        worker = Worker("A", 1, process, cast(Any, None))
        now = {"ns": process.started_ns}
        monkeypatch.setattr("harness.worker.now_ns", lambda: now["ns"])
        monkeypatch.setattr(process, "tree", lambda: [PID])
        for look, told in ((worker.spoke, before), (worker.look_at_threads, later)):
            delays = {thread: ms * MS for thread, ms in told.items()}
            monkeypatch.setattr(kernel, "run_delays_ns", lambda _, delays=delays: delays)
            if spoke or look == worker.look_at_threads:
                look()
        process.end(0, at_end_ms * MS)
        process.ended_ns = process.started_ns + 1000 * MS
        return worker.starved_ms()

    return asyncio.run(live())


def test_the_wait_of_a_worker_that_starts_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    assert starved_ms(monkeypatch, before={PID: 700}, later={PID: 750}, at_end_ms=900) == 0


def test_a_quarter_of_the_time_is_waited_by_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    assert starved_ms(monkeypatch, before={PID: 700}, later={PID: 750}, at_end_ms=1100) == 150


def test_a_thread_that_began_later_waits_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog of a worker that was slow to start: its wait is not forgiven for the first thread's."""
    assert starved_ms(monkeypatch, before={PID: 700}, later={PID: 710, THREAD: 600}, at_end_ms=710) == 350


def test_a_worker_that_never_spoke_waited_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    assert starved_ms(monkeypatch, before={}, later={}, at_end_ms=700, spoke=False) == 450


@pytest.mark.parametrize(
    "order",
    [
        ("starting", "started", "heard"),
        ("starting", "heard", "started"),  # it was faster than the message that told its pid
        ("starting", "started", "heard", "starting", "heard", "started"),
    ],
)
def test_the_first_message_is_told_to_its_worker_whenever_that_is_known(order: tuple[str, ...]) -> None:
    first = FirstMessages()
    told: list[Worker] = []

    class Told(Worker):
        def spoke(self) -> None:
            told.append(self)

    started: list[Worker] = []
    for step in order:
        if step == "started":
            started.append(Told("B", 1 + len(started), cast(Any, None), cast(Any, None)))
            first.started(started[-1])
        else:
            getattr(first, step)("B")
    first.heard("B")
    assert told == started


def test_a_message_of_the_delivery_before_is_not_the_first_of_the_next() -> None:
    first = FirstMessages()
    first.heard("B")
    first.starting("B")
    worker = Worker("B", 2, cast(Any, None), cast(Any, None))
    first.started(worker)
    assert worker.spoke_ns is None
