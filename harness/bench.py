"""The bench of one experiment: its workers, its links, its database, its lock's account, its history.

Faults work on the bench; the job queue (harness/jobqueue.py) delivers on it. Nothing of it outlives the experiment.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from harness import jobs
from harness.advisory import AdvisoryAccount
from harness.crew import Crew
from harness.history import History, now_ns
from harness.locks import KeyspaceWatch, Lease, LockAccount, RedisLock
from harness.monitor import Monitor
from harness.network.link import Address, Link
from harness.network.tap import Fate, Handler, Message
from harness.nodes import FIRST, Node, QuorumLock, judges
from harness.output import Output
from harness.processes import kill_tree
from harness.profile import Profile
from harness.senders import Senders
from harness.spec import Spec
from harness.stack import Stack
from harness.stack.redis import RedisServer
from harness.verdict import NO_FAULT
from harness.worker import FirstMessages, Worker

KILL_TIMEOUT_S = 10.0
JITTER_LEASES = 0.3
"""How late B starts, and how much longer a fault lasts, at most, in the second run and later ones."""


@dataclass
class Bench:
    """Everything one experiment has of its own."""

    spec: Spec
    stack: Stack
    crew: Crew
    profile: Profile
    redis: RedisServer
    watch: KeyspaceWatch
    monitor: Monitor
    database: int
    customer: str
    invoice: str
    history: History = field(default_factory=History)
    links: dict[tuple[str, str], Link] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)
    upstreams: dict[tuple[str, str], Address] = field(default_factory=dict)
    """Where a worker's link leads, where it is not the stack's own server: (worker, link) -> address."""
    at_boundary: dict[str, Handler] = field(default_factory=dict)
    """What happens to A's messages, by boundary."""
    on_message: list[Callable[[str, Message], None]] = field(default_factory=list)
    """Told of every message: (worker, message)."""
    struck: asyncio.Event = field(default_factory=asyncio.Event)
    lifted: asyncio.Event = field(default_factory=asyncio.Event)
    a_known: asyncio.Event = field(default_factory=asyncio.Event)
    """Worker A's process is known."""
    b_asked: asyncio.Event = field(default_factory=asyncio.Event)
    """B's first message has reached its tap."""
    charge_left: asyncio.Event = field(default_factory=asyncio.Event)
    """A's charge request has reached its tap."""
    nodes: list[Node] = field(default_factory=list)
    """The Redis servers besides the first, where the subject has asked for several."""
    earlier: frozenset[str] = frozenset()
    """Charges of the customer's earlier invoices, settled before A was delivered: no business of the verdict's."""
    senders: Senders = field(default_factory=Senders)
    database_name: str | None = None
    _database_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _first_messages: FirstMessages = field(default_factory=FirstMessages)

    def __post_init__(self) -> None:
        self.account = LockAccount(self.history)
        self.struck_ns = 0
        self.b_spoke_ns = 0
        """When B's last message, or the answer to it, reached its tap."""
        self.asked_to_charge = False
        """Whether any worker's request to charge has reached its tap."""
        self.lock: RedisLock | QuorumLock | None = None
        self.advisory: AdvisoryAccount | None = None
        if self.profile.lock_kind == "advisory":
            self.advisory = AdvisoryAccount(self.account, self.senders.whose_session)
        if self.profile.lock_kind == "redis" and self.profile.lock is not None:
            key = self.profile.lock_for(self.customer, self.invoice)
            if self.nodes:
                places = {FIRST: (self.redis, self.database)} | {n.link: (n.redis, n.database) for n in self.nodes}
                judged_by = judges(self.profile.lock_nodes, len(places))
                self.lock = QuorumLock(places, key, self.account, self.senders.who_set, judged_by)
            else:
                self.lock = RedisLock(self.redis, self.database, key, self.account, self.senders.who_set)

    # --- links ---

    async def open_links(self, worker: str) -> None:
        """Opens a worker's links, once."""
        names = ["redis", "processor"] + (["postgres"] if self.stack.postgres is not None else [])
        names += [node.link for node in self.nodes]
        for name in names:
            if (worker, name) not in self.links:
                link = Link(name, worker, self._upstream(worker, name), self._noting(worker))
                if worker == "A":
                    link.interceptor = self._handler_for
                await link.open()
                self.links[worker, name] = link

    def link(self, worker: str, name: str) -> Link:
        return self.links[worker, name]

    def _upstream(self, worker: str, name: str) -> Callable[[], Awaitable[Address]]:
        async def upstream() -> Address:
            return self.upstreams.get((worker, name)) or await self.server_address(worker, name)

        return upstream

    async def server_address(self, worker: str, name: str) -> Address:
        """Where the stack's own server for this link is."""
        if name == "redis":
            return self.redis.address
        if (node := next((node for node in self.nodes if node.link == name), None)) is not None:
            return node.redis.address
        if name == "processor":
            return self.stack.processor.payment[worker]
        if self.stack.postgres is None:
            raise ConnectionRefusedError("the stack has no Postgres")
        await self.need_database()
        return self.stack.postgres.host, self.stack.postgres.port

    async def need_database(self) -> str:
        """The experiment's own Postgres database, made when the first connection asks for it."""
        assert self.stack.postgres is not None
        async with self._database_lock:
            if self.database_name is None:
                if self.uses_postgres:
                    self.database_name = await self.stack.postgres.lease()
                else:
                    await self.stack.postgres.create_database(self.late_database)
                    self.database_name = self.late_database
            return self.database_name

    @property
    def uses_postgres(self) -> bool:
        """Whether the baseline saw the subject use Postgres (in the baseline itself: whether it might)."""
        return self.spec.fault == NO_FAULT or "postgres" in self.profile.links

    @property
    def late_database(self) -> str:
        """The database of a subject that is not expected to use one: made only if it connects after all."""
        return f"lp_{self.customer.replace('-', '_')}"

    def _handler_for(self, message: Message) -> Handler | None:
        return self.at_boundary.get(message.boundary)

    def _noting(self, worker: str) -> Callable[[Message], None]:
        def note(message: Message) -> None:
            self._first_messages.heard(worker)
            if worker == "B":
                self.b_asked.set()
                self.b_spoke_ns = message.at_ns
            detail = self.senders.told(worker, message, None if self.lock is None else self.lock.key)
            if "token" in detail:
                self.asked_to_charge = True
                if worker == "A":
                    self.charge_left.set()
            self.history.add("tap", worker, message.side, at_ns=message.at_ns, **detail)
            for listener in self.on_message:
                listener(worker, message)

        return note

    # --- the lock ---

    def whose_session(self, backend_pid: int) -> str | None:
        """Whose a Postgres session is, by the number that the server told the worker when it began."""
        return self.senders.whose_session(backend_pid)

    @property
    def a_lease(self) -> Lease | None:
        return self.account.first_of("A")

    # --- workers ---

    async def deliver(self, name: str, invoice: str | None = None) -> Worker | None:
        """Hands the job to a new process. None, with an event, when the process could not be started.

        invoice: another one of the same customer, where it is not the experiment's own.
        """
        await self.open_links(name)
        delivery = 1 + sum(worker.name == name for worker in self.workers)
        job = jobs.job(self, name, invoice)
        output = Output(lambda said: self._said(name, said))
        if not self.workers:
            self.history.restart_clock()
        self.history.add(
            "queue", name, "delivered", delivery=delivery, customer=job.customer, invoice=job.invoice,
            amount=job.amount, currency=job.currency, ttl_ms=self.spec.ttl_ms, lock=self.profile.lock,
        )  # fmt: skip
        self._first_messages.starting(name)
        try:
            process = await self.crew.start(job, output)
        except OSError as error:
            output.close()
            self.history.add("queue", name, "not-started", reason=str(error), delivery=delivery)
            return None
        output.started()
        worker = Worker(name, delivery, process, output)
        self.workers.append(worker)
        self._first_messages.started(worker)
        if name == "A":
            self.a_known.set()
        return worker

    def _said(self, name: str, said: dict[str, Any]) -> None:
        fields = {key: value for key, value in said.items() if key not in ("event", "t_ms", "witness", "who", "what")}
        self.history.add("worker", name, "said", event=said["event"], **fields)

    async def ended(self, worker: Worker, timeout_s: float) -> bool:
        """Waits for a worker's end and notes it; False when it has not ended in time."""
        try:
            status = await asyncio.wait_for(worker.process.wait(), timeout_s)
        except TimeoutError:
            return False
        if not worker.log:
            worker.log = worker.output.close() or "\n"
            self.history.add(
                "queue", worker.name, "ended", at_ns=worker.process.ended_ns, exit=status, delivery=worker.delivery
            )
        return True

    async def kill(self, worker: Worker) -> None:
        """Ends a worker and its descendants that nobody waits for any more."""
        if worker.process.returncode is None:
            worker.killed = True
            pids = await kill_tree(worker.process, timeout_s=KILL_TIMEOUT_S)
            self.history.add("kernel", worker.name, "killed", processes=len(pids), delivery=worker.delivery)
        await self.ended(worker, KILL_TIMEOUT_S)

    def jitter(self, what: str) -> float:
        """A fraction of a lease by which something is late in this run; 0 in the first run of each experiment."""
        if self.spec.run == 1:
            return 0.0
        return random.Random(f"{self.spec.seed}/{self.spec.run}/{self.spec.id}/{what}").random() * JITTER_LEASES

    @property
    def a(self) -> Worker:
        """Worker A."""
        return self.workers[0]

    @property
    def lease_s(self) -> float:
        return self.spec.ttl_ms / 1000

    # --- faults ---

    def strike(self, **detail: Any) -> None:
        """The fault begins now."""
        self.history.add("queue", "fault", "fault-struck", fault=self.spec.fault, place=self.spec.place, **detail)
        self.struck_ns = now_ns()
        self.struck.set()

    def landed(self, witness: str, evidence: str) -> None:
        self.history.add(witness, "fault", "landed", evidence=evidence)

    def not_landed(self, reason: str) -> None:
        self.history.add("queue", "fault", "not-landed", reason=reason)

    async def hold_until_lifted(self, message: Message) -> Fate:
        """A handler's way to hold a message for as long as the fault stands."""
        self.history.add("tap", "A", "held", boundary=message.boundary)
        await self.lifted.wait()
        self.history.add("tap", "A", "let-go", boundary=message.boundary)
        return Fate.DELIVER

    async def prepare(self) -> None:
        """Opens the links of A and B, and watches the lock."""
        if self.uses_postgres and self.stack.postgres is not None:
            await self.need_database()
        for worker in ("A", "B"):
            await self.open_links(worker)
        self.hear_lock()
        if self.advisory is not None and self.database_name is not None:
            self.stack.advisory.listen(self.database_name, self.advisory.on_rows)

    def hear_lock(self) -> None:
        """The servers' events of the lock are listened to from here on."""
        if self.lock is not None:
            self.watch.listen(self.database, self.lock.on_event)
        if isinstance(self.lock, QuorumLock):
            for node in self.nodes:
                node.watch.listen(node.database, self.lock.on(node.link).on_event)

    def unhear_lock(self) -> None:
        """Nobody listens to the servers' events any more."""
        self.watch.unlisten(self.database)
        for node in self.nodes:
            node.watch.unlisten(node.database)

    async def close(self) -> None:
        """Ends everything that is left, and gives back what was lent."""
        if self.lock is not None:
            self.lock.stop()
        self.unhear_lock()
        if self.database_name is not None:
            self.stack.advisory.unlisten(self.database_name)
        for worker in self.workers:
            await self.kill(worker)
        for link in self.links.values():
            link.close()
        if self.database_name is not None and self.stack.postgres is not None:
            await self.stack.postgres.give_back(self.database_name)
