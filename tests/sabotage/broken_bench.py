"""One thing of an experiment's own that is broken: what it is, and which words have to name the cause."""

from __future__ import annotations

import dataclasses
import http.server
import json
import threading
from collections.abc import Callable
from typing import Any

from harness.bench import Bench
from harness.network.connection import Connection
from harness.network.link import Link
from harness.network.tap import Fate, Handler, Message
from harness.network.toxics import Toxiproxy
from harness.output import Output
from harness.processes import Process
from harness.stack.processor import Account
from harness.subject import Job
from sabotage.workshop import Instead, Sabotage

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
