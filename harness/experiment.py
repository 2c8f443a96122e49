"""Run one experiment: a subject, a fault at a place, one invoice, one history, one verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError

from harness.baseline import Observer
from harness.bench import Bench
from harness.faults import FAULTS, Fault
from harness.history import History, now_ns
from harness.jobqueue import A_ENDS_WITHIN_LEASES, JobQueue
from harness.jobs import direct_job
from harness.processes import HarnessError
from harness.spec import EXACTLY_ONE, INCONCLUSIVE, NOT_APPLICABLE, Spec
from harness.stack import StackError
from harness.stack.processor import Account
from harness.subject import Job
from harness.verdict import STALL_FRACTION, Verdict, judge
from harness.worker import process_starved_ms

Prepare = Callable[[Job], Awaitable[None]]
"""--harness-setup: called with the job. Raises HarnessError."""


@dataclass(slots=True)
class Outcome:
    """What one run of one experiment came to."""

    spec: Spec
    verdict: Verdict
    history: History
    workers: list[dict[str, Any]]
    wall_s: float
    recovery_s: float | None = None

    @property
    def surprising(self) -> bool:
        """True when the run must not be green for it."""
        return self.verdict.kind not in (self.spec.expected, NOT_APPLICABLE) or self.reproduced_by_chance

    @property
    def reproduced_by_chance(self) -> bool:
        """A declared hole showed, but not because of its fault: nothing saw that land."""
        return self.verdict.kind == self.spec.expected != EXACTLY_ONE and not self.verdict.landed


class Experiment:
    """One run on one bench."""

    def __init__(self, bench: Bench, setup: Prepare | None = None, observer: Observer | None = None) -> None:
        self.bench = bench
        self._setup = setup
        self._observer = observer
        self._started_s = time.monotonic()
        self._account: Account | None = None
        self._armed = False

    async def run(self) -> Outcome:
        """Runs to the end, whatever happens: what goes wrong in the harness is an inconclusive verdict."""
        bench = self.bench
        fault_class = FAULTS[bench.spec.fault]
        if (why := fault_class.inapplicable(bench.profile, bench.spec.place)) is not None:
            return not_applicable(bench.spec, why)
        fault = fault_class(bench)
        try:
            await self._drive(fault)
        except (HarnessError, StackError, RedisError, OSError) as error:
            bench.history.add("queue", "fault", "harness-failed", reason=f"{type(error).__name__}: {error}")
        finally:
            try:
                if self._armed:
                    await fault.clean_up()
                await bench.close()
            except (HarnessError, StackError, RedisError, OSError) as error:
                bench.history.add("queue", "fault", "harness-failed", reason=f"while cleaning up: {error}")
        return self._outcome()

    async def _drive(self, fault: Fault) -> None:
        bench = self.bench
        await bench.prepare()
        if self._observer is not None:
            self._observer.watch()
        if self._setup is not None:
            await self._setup(direct_job(bench))
        self._armed = True
        await fault.arm()
        await JobQueue(bench, self._charges).run(fault.lift)
        delivered = len(bench.workers)
        await fault.afterwards()
        if len(bench.workers) > delivered:
            self._account = None  # another invoice: the processor has to be asked again
        await self._drain()
        account = await self._settled()
        self._note_processor(account)
        if bench.lock is not None:
            await bench.lock.settle()
        await fault.witness()
        self._note_stalls()
        if not bench.redis.own:
            await bench.watch.check()
        self._note_failures(account)
        for charge in account.charges:
            if charge["id"] in bench.earlier:
                continue
            bench.history.add(
                "ledger", charge["who"] or "?", "charge", at_ns=charge["committed_ns"], charge=charge["id"],
                customer=charge["customer"], invoice=charge["invoice"], amount=charge["amount"],
                currency=charge["currency"], token=charge["fencing_token"], key=charge["idempotency_key"],
            )  # fmt: skip
        bench.history.add("queue", "queue", "judged")

    async def _charges(self) -> int:
        self._account = account = await self.bench.stack.processor.account(self.bench.customer)
        return [charge["invoice"] for charge in account.charges].count(self.bench.invoice) + account.in_flight

    async def _drain(self) -> None:
        """Shuts the taps: what a worker left running cannot charge any more behind the judge's back."""
        links = self.bench.links.values()
        deadline = time.monotonic() + self.bench.lease_s
        while any(link.connections for link in links):
            self._account = None  # something is still under way: what the processor said last may be no longer true
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.002)
        for link in links:
            link.close()

    async def _settled(self) -> Account:
        """The processor's account once nothing of this customer is in flight any more."""
        bench = self.bench
        if self._account is not None and self._account.in_flight == 0:
            return self._account
        deadline = time.monotonic() + A_ENDS_WITHIN_LEASES * bench.lease_s
        pause_s = 0.002
        while True:
            account = await bench.stack.processor.account(bench.customer)
            if account.in_flight == 0:
                return account
            if time.monotonic() > deadline:
                raise HarnessError(f"{account.in_flight} requests are still in flight at the processor; cannot count")
            await asyncio.sleep(pause_s)
            pause_s = min(0.05, pause_s * 2)

    def _note_processor(self, account: Account) -> None:
        for entry in account.log:
            detail = {
                key: value for key, value in entry.items() if key not in ("t_ns", "who", "what") and value is not None
            }
            self.bench.history.add("processor", entry["who"] or "?", entry["what"], at_ns=entry["t_ns"], **detail)

    def _note_stalls(self) -> None:
        """What the machine did to this experiment; only what could have decided something is noted."""
        bench = self.bench
        threshold_ms = STALL_FRACTION * bench.spec.ttl_ms
        worst_ms = max((worker.starved_ms() for worker in bench.workers), default=0.0)
        if worst_ms > threshold_ms:
            bench.history.add("monitor", "queue", "stall", ms=round(worst_ms, 1), of="a worker")
        for redis in (bench.redis, *(node.redis for node in bench.nodes)):
            own = redis.process if redis.own else None
            if own is not None and (worst_ms := process_starved_ms(own)) > threshold_ms:
                bench.history.add("monitor", "queue", "stall", ms=round(worst_ms, 1), of="a Redis of its own")
        elsewhere = off_path(bench)
        for stall in bench.monitor.since(bench.history.started_ns, threshold_ms):
            if stall.of in elsewhere:
                continue
            bench.history.add("monitor", "queue", "stall", at_ns=stall.at_ns, ms=round(stall.ms, 1), of=stall.of)

    def _note_failures(self, account: Account) -> None:
        bench = self.bench
        for link in bench.links.values():
            for error in link.errors:
                reason = f"the tap on {link.worker}'s {link.name} link failed: {type(error).__name__}: {error}"
                bench.history.add("queue", "fault", "harness-failed", reason=reason)
        if account.boot != bench.stack.processor.boot:
            bench.history.add("processor", "queue", "processor-restarted")
        if (died := bench.stack.died()) is not None:
            bench.history.add("queue", "queue", "server-died", reason=died)
        if bench.watch.broken is not None and not bench.redis.own:
            bench.history.add("queue", "queue", "server-died", reason=bench.watch.broken)
        for node in bench.nodes:
            if node.watch.broken is not None:  # a node that a fault took away is back, and is listened to again
                bench.history.add("queue", "queue", "server-died", reason=node.watch.broken)

    def _outcome(self) -> Outcome:
        bench = self.bench
        workers = [
            {"name": worker.name, "exit": worker.process.returncode, "log": worker.log.strip("\n")}
            for worker in bench.workers
        ]
        return Outcome(
            bench.spec,
            judge(bench.history),
            bench.history,
            workers,
            time.monotonic() - self._started_s,
            self._recovery_s(),
        )

    def _recovery_s(self) -> float | None:
        """How long the customer stayed locked after what befell A while it held the lock, by the lock's server.

        Until the lock was free, not until somebody had it: how fast the harness starts B is no property of the lock.
        """
        begins = FAULTS[self.bench.spec.fault].recovers_from
        befell = self.bench.history.select(begins, who="A") if begins is not None else []
        if not befell:
            return None
        since_ns = self.bench.history.started_ns + int(befell[0].t_ms * 1e6)
        for lease in self.bench.account.leases:
            if lease.holder == "A" and lease.gone_ns is not None and lease.gone_ns >= since_ns:
                return round((lease.gone_ns - since_ns) / 1e9, 3)
        return None


def off_path(bench: Bench) -> frozenset[str]:
    """The shared servers that no message of this experiment has passed: how they fared decided nothing here.

    A server is on the path where a worker has connected to it; Toxiproxy where the fault puts it in between. The
    processor always is: what it has is the verdict.
    """
    connected = {name for (_, name), link in bench.links.items() if link.accepted}
    off = {"redis", "postgres"} - connected
    if bench.redis.own:
        off.add("redis")
    if not FAULTS[bench.spec.fault].proxies(bench.spec.place):
        off.add("toxiproxy")
    return frozenset(off)


def not_applicable(spec: Spec, reason: str) -> Outcome:
    """The outcome of an experiment that was not run because it does not concern the subject."""
    history = History()
    history.add("queue", "fault", "inapplicable", reason=reason)
    return Outcome(spec, Verdict(NOT_APPLICABLE, reason, 0, landed=False, contended=False), history, [], 0.0)


def failed(spec: Spec, reason: str) -> Outcome:
    """The outcome of an experiment that could not even begin."""
    history = History(started_ns=now_ns())
    history.add("queue", "fault", "harness-failed", reason=reason)
    return Outcome(spec, Verdict(INCONCLUSIVE, reason, 0, landed=False, contended=False), history, [], 0.0)
