"""One delivery of the job, and how long the workers of an experiment had to wait for a CPU."""

from __future__ import annotations

from dataclasses import dataclass

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
    longest_delay_ns: int = 0
    """How long its most delayed thread, or descendant's thread, had waited for a CPU when it was last looked at."""

    def look_at_threads(self) -> None:
        """Of a process that has ended the kernel tells only how long its first thread waited (see kernel)."""
        self.longest_delay_ns = max(kernel.run_delays_ns(self.process.tree()).values(), default=self.longest_delay_ns)


def starved_ms(workers: list[Worker]) -> float:
    """The longest wait for a CPU among ended workers, beyond a quarter of the time each lived, in milliseconds."""
    return max((process_starved_ms(worker.process, worker.longest_delay_ns) for worker in workers), default=0.0)


def process_starved_ms(process: Process, seen_ns: int = 0) -> float:
    """How long a process has waited for a CPU beyond a quarter of the time it lived, in milliseconds, at least 0.

    seen_ns: what another of its threads had waited, when somebody looked.
    """
    lived_ns = (process.ended_ns or now_ns()) - process.started_ns
    delay_ns = max(seen_ns, process.run_delay_ns or kernel.run_delay_ns(process.pid) or 0)
    return max(0.0, (delay_ns - lived_ns / 4) / 1e6)
