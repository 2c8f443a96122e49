"""The engine's host: one event loop in a thread of the process that owns the run, and the ways to ask it things.

Under pytest-xdist the controller hosts the engine, and its workers ask over a socket (multiprocessing.managers), so
that there is one stack and one watch on the machine however many pytest processes there are.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.managers import BaseManager
from typing import Any, Protocol, TypeVar

from harness import records
from harness.attempts import Entry
from harness.engine import Config, Engine
from harness.processes import HarnessError
from harness.profile import Profile
from harness.report import failure_text
from harness.report.results import Experiment, Run
from harness.settings import CONTROL, Settings, variant
from harness.spec import DOUBLE_CHARGE, Spec
from harness.sweep import FAULTS, BoundaryHoles, Point, Sweep
from harness.variants import SCENARIO_ONLY

T = TypeVar("T")
_POLL_S = 0.2
_EXPOSED = ("submit", "result", "submit_sweep", "sweep")


class Host(Protocol):
    """What tests ask. Every call blocks."""

    def submit(self, specs: Sequence[Spec]) -> None:
        """Puts experiments into the run. Raises what starting the engine raises."""
        ...

    def result(self, spec: Spec, control: Spec | None = None) -> Experiment:
        """Waits for an experiment. Raises HarnessError."""
        ...

    def submit_sweep(self, subject: str, holes: BoundaryHoles) -> None:
        """Puts the sweep of a subject into the run."""
        ...

    def sweep(self, subject: str) -> Sweep:
        """Waits for a sweep that was submitted."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, in experiments. settled: nothing is left to do."""

    done: int
    of: int
    failures: int
    in_flight: int
    settled: bool


class EngineHost:
    """Hosts the engine in this process. Started by the first submit()."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine: Engine | None = None
        self.started = datetime.datetime.now(datetime.UTC)
        self.done = 0
        self.failures = 0
        self._began_s = time.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._broken: Exception | None = None
        self._declared: dict[str, tuple[tuple[str, str], ...]] = {}
        self.sweeps: dict[str, Sweep] = {}

    def start(self) -> Engine:
        """Starts the engine, once. Raises StackError, SubjectError, HarnessError."""
        with self._starting:
            if self._broken is not None:
                raise self._broken
            if self.engine is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="engine", daemon=True)
                self._thread.start()
                engine = Engine(self._config())
                engine.on_done = self._count
                try:
                    self.call(engine.start())
                except Exception as error:
                    self._broken = error
                    raise
                self.engine = engine
            return self.engine

    def _config(self) -> Config:
        settings = self.settings
        controls = [variant(name) for name in (CONTROL, *SCENARIO_ONLY)]
        return Config(
            settings.subjects,
            ttl_ms=settings.ttl_ms,
            seed=settings.seed,
            cwd=settings.cwd,
            stack=settings.stack,
            redis=settings.redis,
            redis_flush=settings.redis_flush,
            postgres=settings.postgres,
            toxiproxy=settings.toxiproxy,
            setup=settings.setup,
            controls=controls,
        )

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs something in the engine's loop and waits; can be interrupted."""
        assert self._loop is not None
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        while True:
            try:
                return future.result(_POLL_S)
            except TimeoutError:
                if future.done():
                    raise
                continue

    def wait(self, tell: Callable[[Progress], None]) -> None:
        """Returns when every experiment is done; tells how far it is a few times a second."""
        engine = self.start()

        async def progress() -> Progress:
            return Progress(self.done, len(engine.entries), self.failures, engine.gate.in_flight, engine.settled)

        while True:
            now = self.call(progress())
            tell(now)
            if now.settled:
                return
            time.sleep(_POLL_S)

    def _count(self, entry: Entry) -> None:
        self.done += 1
        self.failures += entry.attempts[-1].surprising

    def submit(self, specs: Sequence[Spec]) -> None:
        engine = self.start()

        async def put() -> None:
            engine.submit(specs)

        self.call(put())

    def result(self, spec: Spec, control: Spec | None = None) -> Experiment:
        engine = self.start()
        return self.call(self._result(engine, spec, control))

    async def _result(self, engine: Engine, spec: Spec, control: Spec | None) -> Experiment:
        await engine.outcome(spec.id)
        record = records.experiment(engine.entries[spec.id], self.settings)
        if control is not None and record["verdict"] != DOUBLE_CHARGE:
            shown = await engine.outcome(control.id)
            if shown.verdict.kind != control.expected:
                engine.entries[spec.id].overruled = (
                    f"the control {control.subject} should have shown {control.expected} here and was "
                    f"{shown.verdict.kind}: the fault did not do what it should"
                )
                record = records.experiment(engine.entries[spec.id], self.settings)
        return record

    def submit_sweep(self, subject: str, holes: BoundaryHoles) -> None:
        engine = self.start()

        async def put() -> None:
            engine.submit_sweep(subject, holes, self.settings.runs_of(subject))

        self._declared[subject] = tuple(holes)
        self.call(put())

    def sweep(self, subject: str) -> Sweep:
        engine = self.start()
        wrong, entries = self.call(engine.sweep(subject))
        profile = engine.profiles.get(subject, Profile(subject))
        points = []
        for entry in entries:
            outcome = entry.attempts[-1]
            told = failure_text(records.experiment(entry, self.settings)) if outcome.surprising else None
            points.append(Point(entry.spec, outcome.verdict.kind, outcome.verdict.reason, told))
        done = Sweep(
            subject,
            profile.known,
            FAULTS,
            profile.unstable,
            tuple(points),
            self.settings.runs_of(subject),
            self._declared.get(subject, ()),
            wrong,
        )
        self.sweeps[subject] = done
        return done

    def run(self, *, partial: bool) -> Run | None:
        """Everything so far as results.json has it; None when nothing was started."""
        if self.engine is None:
            return None
        engine = self.engine

        async def collect() -> Run:
            wall_s = time.monotonic() - self._began_s
            run = records.run(engine, self.settings, started=self.started, wall_s=wall_s, partial=partial)
            if self.sweeps:
                run["sweep"] = {name: _told(sweep) for name, sweep in self.sweeps.items()}
            return run

        return self.call(collect())

    def stop(self) -> None:
        """Ends the engine and everything it started."""
        if self._loop is None or self._thread is None:
            return
        if self.engine is not None:
            self.call(self.engine.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


def _told(sweep: Sweep) -> dict[str, Any]:
    return {
        "boundaries": list(sweep.boundaries),
        "faults": list(sweep.faults),
        "points": len(sweep.points),
        "failures": len(sweep.failures()),
        "sentence": sweep.sentence(),
    }


class _Manager(BaseManager):
    """Carries calls of pytest-xdist workers to the controller's engine."""


class SharedHost:
    """Makes a controller's host reachable for its workers, by an abstract Unix socket, which leaves no file behind."""

    def __init__(self, host: EngineHost) -> None:
        self.address = f"\0lockproof-{os.getpid()}-{secrets.token_hex(4)}"
        self.key = secrets.token_hex(16)

        class Serving(_Manager):
            pass

        Serving.register("host", callable=lambda: host, exposed=_EXPOSED)
        server = Serving(address=self.address, authkey=self.key.encode()).get_server()
        threading.Thread(target=server.serve_forever, name="engine-rpc", daemon=True).start()


def connect(address: str, key: str) -> Host:
    """The controller's host, from a pytest-xdist worker. Raises HarnessError when it cannot be reached."""

    class Client(_Manager):
        pass

    Client.register("host", exposed=_EXPOSED)
    client = Client(address=address, authkey=key.encode())
    try:
        client.connect()
    except OSError as error:
        raise HarnessError(f"the pytest-xdist controller's engine cannot be reached: {error}") from error
    host: Host = client.host()  # type: ignore[attr-defined]
    return host


__all__ = ["EngineHost", "Host", "SharedHost", "connect"]
