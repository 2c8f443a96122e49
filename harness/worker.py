"""One delivery of the job, and how long the workers of an experiment had to wait for a CPU."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness import kernel
from harness.history import now_ns
from harness.output import Output
from harness.processes import Process


@dataclass(slots=True)
class Worker:
    """One delivery: a process, what it printed, and when it was wanted to end."""

    name: str
    delivery: int
    process: Process
    output: Output
    log: str = ""
    killed: bool = False
    spoke_ns: int | None = None
    """When its first message reached its tap."""
    _waited_before: dict[int, int] = field(default_factory=dict)
    """How long each of its threads, or its descendants', had waited for a CPU by then, in nanoseconds."""
    _waited: dict[int, int] = field(default_factory=dict)
    """The same when they were last looked at."""

    def spoke(self) -> None:
        """Its first message is here. What it had waited for before, to start, can have decided nothing."""
        self.spoke_ns = now_ns()
        self._waited_before = kernel.run_delays_ns(self.process.tree())

    def look_at_threads(self) -> None:
        """Of a process that has ended the kernel tells only how long its first thread waited (see kernel)."""
        self._waited = kernel.run_delays_ns(self.process.tree()) or self._waited

    def starved_ms(self) -> float:
        """How long its most delayed thread has waited for a CPU since the first message, in milliseconds, at least 0.

        Not counted is a quarter of the time: so much everybody waits.
        """
        process = self.process
        waited = self._waited | {process.pid: _waited_ns(process)}
        longest_ns = max(delay_ns - self._waited_before.get(thread, 0) for thread, delay_ns in waited.items())
        return _beyond_a_quarter_ms(longest_ns, process, self.spoke_ns or process.started_ns)


class FirstMessages:
    """Tells each worker when its first message is here, which may be before anybody knows the worker."""

    def __init__(self) -> None:
        self._silent: dict[str, Worker] = {}
        self._early: set[str] = set()

    def starting(self, name: str) -> None:
        self._early.discard(name)

    def started(self, worker: Worker) -> None:
        if worker.name in self._early:
            worker.spoke()
        else:
            self._silent[worker.name] = worker

    def heard(self, name: str) -> None:
        """A message of somebody's of this name."""
        if (worker := self._silent.pop(name, None)) is not None:
            worker.spoke()
        else:
            self._early.add(name)


def process_starved_ms(process: Process) -> float:
    """How long a process has waited for a CPU beyond a quarter of the time it lived, in milliseconds, at least 0."""
    return _beyond_a_quarter_ms(_waited_ns(process), process, process.started_ns)


def _waited_ns(process: Process) -> int:
    return process.run_delay_ns or kernel.run_delay_ns(process.pid) or 0


def _beyond_a_quarter_ms(waited_ns: int, process: Process, since_ns: int) -> float:
    until_ns = process.ended_ns or now_ns()
    return max(0.0, (waited_ns - (until_ns - since_ns) / 4) / 1e6)
