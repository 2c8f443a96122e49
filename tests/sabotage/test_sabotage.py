"""The harness with one thing broken is never green: the verdict is inconclusive, or the error names the cause.

Each experiment here would be exactly-one with nothing broken, which one test shows. The death of a pytest-xdist worker
is in test_xdist_worker.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
import http.server
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from core.runs import run

from harness.bench import Bench
from harness.experiment import Outcome
from harness.network.connection import Connection
from harness.network.link import Link
from harness.network.tap import Fate, Handler, Message
from harness.network.toxics import Toxiproxy
from harness.output import Output
from harness.processes import Process
from harness.stack import StackError
from harness.stack.local import LocalStack
from harness.stack.processor import Account, ProcessorControl
from harness.stack.redis import LocalRedis
from harness.subject import Job, Subject
from sabotage.workshop import MOST_TRIES, STALLED, Instead, Sabotage, attempt, engine, no_postgres, soon

# --- Toxiproxy ---


class _Nothing(http.server.BaseHTTPRequestHandler):
    """A Toxiproxy that agrees to everything and does nothing; shrewd: it even gives back what it was told."""

    shrewd = False

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        told = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if not self.shrewd:
            self._answer(200, {})
            return
        states = self.server.states  # type: ignore[attr-defined]
        if self.path == "/proxies":
            states[told["name"]] = {**told, "toxics": [], "listen": told["upstream"]}
            self._answer(201, states[told["name"]])
            return
        state = states[self.path.split("/")[2]]
        if self.path.endswith("/toxics"):
            state["toxics"].append(told)
            self._answer(200, told)
        else:
            state.update(told)
            self._answer(200, state)

    def do_GET(self) -> None:
        if not self.shrewd:
            self._answer(200, {})
            return
        state = self.server.states[self.path.split("/")[2]]  # type: ignore[attr-defined]
        if "/toxics/" in self.path:
            self._answer(200, state["toxics"][-1])
        elif self.path.endswith("/toxics"):
            self._answer(200, state["toxics"])
        else:
            self._answer(200, state)

    do_PATCH = do_POST

    def do_DELETE(self) -> None:
        self._answer(200, {})

    def log_message(self, *_: Any) -> None:
        pass


def nothing_doing(shrewd: bool) -> Callable[[Bench], None]:
    def breaks(bench: Bench) -> None:
        handler = type("Handler", (_Nothing,), {"shrewd": shrewd})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.states = {}  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        toxiproxy = Toxiproxy("127.0.0.1", server.server_address[1])
        bench.stack = Instead(bench.stack, toxiproxy=toxiproxy)

    return breaks


# --- processes ---


class _Careless:
    """A crew whose A is frozen by a harness that stops a process and forgets its children."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._crew = bench.crew
        self.subject, self.source, self.note = bench.crew.subject, bench.crew.source, bench.crew.note

    async def start(self, job: Job, output: Output) -> Process:
        process = await self._crew.start(job, output)
        whole = process.tree

        def tree() -> list[int]:
            return whole() if self._bench.struck.is_set() else [process.pid]

        if job.worker == "A":
            process.tree = tree  # type: ignore[method-assign]
        return process


def stop_only_the_parent(bench: Bench) -> None:
    bench.crew = _Careless(bench)


class _Crew:
    """A crew whose B has an accident."""

    def __init__(self, crew: Any, accident: str) -> None:
        self._crew = crew
        self._accident = accident
        self.subject, self.source, self.note = crew.subject, crew.source, crew.note

    async def start(self, job: Job, output: Output) -> Process:
        if job.worker != "B":
            process: Process = await self._crew.start(job, output)
            return process
        if self._accident == "cannot start":
            raise OSError("out of processes")
        process = await self._crew.start(job, output)
        process.kill()
        await process.wait()
        return process


def accident_of_b(kind: str) -> Callable[[Bench], None]:
    def breaks(bench: Bench) -> None:
        bench.crew = _Crew(bench.crew, kind)

    return breaks


# --- the tap ---


class _Leaky(Connection):
    """A tap that forwards what it should hold."""

    async def _intercept(self, direction: Any, message: Message, handler: Handler) -> None:
        self._write(direction, message.raw)
        await handler(message)
        direction.busy = False
        self._pump(direction)


class _LeakyLink(Link):
    def _accept(self) -> Any:
        self.accepted += 1
        return _Leaky(self).worker


async def leaky_tap(bench: Bench) -> None:
    link = _LeakyLink("processor", "A", bench._upstream("A", "processor"), bench._noting("A"))
    link.interceptor = bench._handler_for
    await link.open()
    bench.links["A", "processor"] = link


async def careless_tap(bench: Bench) -> None:
    """A tap with a bug of its own."""

    async def broken(_: Message) -> Fate:
        raise RuntimeError("a bug in the tap")

    bench.at_boundary["redis.get.1.reply"] = broken


# --- clocks ---


def clock_of_processor(off_ms: float) -> Callable[[Bench], None]:
    def breaks(bench: Bench) -> None:
        processor = bench.stack.processor

        async def account(customer: str) -> Account:
            told = await processor.account(customer)
            log = [{**entry, "t_ns": entry["t_ns"] + int(off_ms * 1e6)} for entry in told.log]
            charges = [{**c, "committed_ns": c["committed_ns"] + int(off_ms * 1e6)} for c in told.charges]
            return dataclasses.replace(told, log=log, charges=charges)

        bench.stack = Instead(bench.stack, processor=Instead(processor, account=account))

    return breaks


BROKEN: dict[str, tuple[Sabotage, str]] = {
    "Toxiproxy answers 200 and knows nothing": (
        Sabotage("slow-charge", "request-wire", nothing_doing(False)),
        "Toxiproxy",
    ),
    "Toxiproxy answers 200, repeats what it was told and does nothing": (
        Sabotage("slow-charge", "request-wire", nothing_doing(True)),
        "the fault did not land: the request was on its way",
    ),
    "a child goes on while its parent is frozen": (
        Sabotage("freeze", "charge-request", stop_only_the_parent, "family-charge"),
        "the fault did not land",
    ),
    "a child that left the family goes on while A is frozen": (
        Sabotage("freeze", "paid-read-reply", subject="escape-charge"),
        "the fault did not land",
    ),
    "a child that left the family goes on after A was killed": (
        Sabotage("crash", "paid-read-reply", subject="escape-charge"),
        "the fault did not land",
    ),
    "B cannot be started": (
        Sabotage("slow-charge", "before-commit", accident_of_b("cannot start")),
        "out of processes",
    ),
    "B dies at start": (Sabotage("slow-charge", "before-commit", accident_of_b("dies")), "B never contended"),
    "the tap forwards a request that it should hold": (
        Sabotage("hold", "charge-request", leaky_tap),
        "the fault did not land: the kernel counts 0 bytes",
    ),
    "the tap lets a frozen worker's request through": (
        Sabotage("freeze", "charge-request", leaky_tap),
        "the fault did not land",
    ),
    "the tap has a bug": (Sabotage("slow-charge", "before-commit", careless_tap), "a bug in the tap"),
    "the processor's clock is slow": (Sabotage("slow-charge", "before-commit", clock_of_processor(-300)), "clock"),
    "the processor's clock is fast": (Sabotage("slow-charge", "before-commit", clock_of_processor(+300)), "clock"),
}
FAMILY = Subject("family-charge", "callable", "family:charge_invoice")
ESCAPE = Subject("escape-charge", "callable", "family:escape")
FAMILY_SOURCE = '''
import ctypes, os, time
from harness.variants import idempotency_key
from harness.variants.naive_ttl import RELEASE, connect
from harness.subject import Processor, poll

def charge_invoice(job):
    """The charge is made by a child in a session of its own, while its parent waits."""
    child = os.fork()
    if child == 0:
        os.setsid()
        try:
            idempotency_key.run(job)
        finally:
            os._exit(0)
    os.waitpid(child, 0)

def escape(job):
    """The charge is made half a lease later by a process that no tree and no group of its parent's contains."""
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans are no more this process's
    read, write = os.pipe()
    go, told = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            os.close(read)
            os.close(told)
            os.read(go, 1)
            time.sleep(job.lease_s / 2)
            try:
                charge = Processor(job).charge(idempotency_key=f"charge-{job.invoice}")
                connect(job).set(f"paid:{job.invoice}", charge["id"])
            finally:
                os._exit(0)
        os._exit(0)
    os.wait()
    os.close(write)
    store = connect(job)
    poll(job, lambda: store.set(f"lock:{job.customer}", job.worker, nx=True, px=job.lock_ttl_ms))
    os.write(told, b"!")
    store.get(f"paid:{job.invoice}")
    os.read(read, 1)
    store.eval(RELEASE, 1, f"lock:{job.customer}", job.worker)
'''

# --- what breaks the whole stack: an engine of its own for each ---


async def _struck(bench: Bench, then: Callable[[], Awaitable[None]]) -> None:
    await bench.struck.wait()
    await then()


_background: set[asyncio.Future[None]] = set()


def when_struck(then: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[Bench], None]:
    def breaks(bench: Bench) -> None:
        _background.add(asyncio.ensure_future(_struck(bench, lambda: then(bench))))

    return breaks


async def garble_ledger(bench: Bench) -> None:
    for name in ("ledger.sqlite", "ledger.sqlite-wal"):
        path = bench.stack.directory / name
        if path.exists():
            path.write_bytes(b"\xde\xad" * (path.stat().st_size // 2))


async def restart_processor(bench: Bench) -> None:
    """kill -9, and a supervisor that starts it again on the same ports."""
    stack = bench.stack
    assert isinstance(stack, LocalStack)
    old = stack._processes["processor"]
    old.kill()
    await old.wait()
    argv = [sys.executable, "-P", "-m", "fakes.processor", "--ledger", str(stack.directory / "ledger.sqlite")]
    for role, (host, port) in stack.processor.payment.items():
        argv += ["--payment", f"{role}={host}:{port}"]
    await stack._spawn("processor", [*argv, "--control", stack.processor.control.removeprefix("http://")])
    await soon(lambda: stack.log_of("processor").count('"boot"') > 1)


async def empty_redis(bench: Bench) -> None:
    """kill -9, and an empty one in its place."""
    redis = bench.stack.redis
    assert isinstance(redis, LocalRedis)
    await redis.restart()


STACK: dict[str, tuple[Callable[[Bench], Coroutine[Any, Any, None]], str]] = {
    "the ledger cannot be read": (garble_ledger, "control address answered 5"),
    "the processor dies and comes back": (restart_processor, "processor"),
    "Redis is replaced by an empty one": (empty_redis, "redis"),
}


async def break_a_stack(name: str) -> Outcome:
    made = await engine()
    try:
        return await attempt(made, Sabotage("slow-charge", "before-commit", when_struck(STACK[name][0])))
    finally:
        await made.stop()


NOTHING = {
    "nothing is broken, slow charge": Sabotage("slow-charge", "before-commit"),
    "nothing is broken, slow wire": Sabotage("slow-charge", "request-wire"),
    "nothing is broken, freeze": Sabotage("freeze", "charge-request"),
    "nothing is broken, hold": Sabotage("hold", "charge-request"),
    "nothing is broken, a family": Sabotage("freeze", "charge-request", subject="family-charge"),
}


async def all_of_it(cwd: str) -> dict[str, Outcome]:
    made = await engine(FAMILY, ESCAPE, cwd=cwd)
    try:
        wanted = {name: sabotage for name, (sabotage, _) in BROKEN.items()} | NOTHING
        # toxiproxy-python knows one server a process: who lies about Toxiproxy is tried alone
        first = {name: await attempt(made, wanted.pop(name)) for name in list(wanted) if name.startswith("Toxiproxy")}
        work = [attempt(made, sabotage) for sabotage in wanted.values()]
        outcomes = await asyncio.gather(*work, *map(break_a_stack, STACK))
        return first | dict(zip([*wanted, *STACK], outcomes, strict=True))
    finally:
        await made.stop()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    place = tmp_path_factory.mktemp("sabotage")
    (place / "family.py").write_text(FAMILY_SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStack, "_start_postgres", no_postgres)
        return asyncio.run(all_of_it(str(place)))


def skip_if_stalled(outcome: Outcome) -> None:
    if STALLED in outcome.verdict.reason:
        pytest.skip(f"the machine had no time for this in {MOST_TRIES} tries")


@pytest.mark.parametrize("name", NOTHING)
def test_with_nothing_broken_the_same_experiments_are_exactly_one(name: str, outcomes: dict[str, Outcome]) -> None:
    skip_if_stalled(outcomes[name])
    assert (outcomes[name].verdict.kind, outcomes[name].verdict.landed) == ("exactly-one", True), outcomes[name].verdict


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_never_green_and_is_named(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[name]
    skip_if_stalled(outcome)
    assert outcome.verdict.kind == "inconclusive", outcome.verdict
    assert BROKEN[name][1] in outcome.verdict.reason


@pytest.mark.parametrize("name", STACK)
def test_a_server_that_breaks_is_never_green_and_is_named(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[name]
    assert outcome.verdict.kind == "inconclusive", outcome.verdict
    assert STACK[name][1] in outcome.verdict.reason


@pytest.mark.parametrize("off_s", [-2, 2])
def test_a_run_does_not_start_with_a_processor_of_another_clock(off_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ProcessorControl.health

    async def health(self: ProcessorControl) -> dict[str, Any]:
        told = await real(self)
        return {**told, "monotonic_ns": told["monotonic_ns"] + off_s * 1_000_000_000}

    monkeypatch.setattr(ProcessorControl, "health", health)
    monkeypatch.setattr(LocalStack, "_start_postgres", no_postgres)
    with pytest.raises(StackError, match=r"clock is \d+ ms off"):
        asyncio.run(engine())


def test_results_that_cannot_be_written_are_an_error_not_a_green_run(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("a file where the directory should be")
    wanted = ("scenarios/", "--harness-variant", "naive-ttl", "-k", "slow_charge and before-commit")
    ran = run(*wanted, report=tmp_path / "reports")
    assert ran.status == pytest.ExitCode.INTERNAL_ERROR
    assert "could not be written" in ran.out
    assert f"{tmp_path}/reports" in ran.out
