"""slow-charge: the processor, or the way to it, takes longer than the lease."""

from __future__ import annotations

from harness.bench import Bench
from harness.faults import Fault, register
from harness.history import Event
from harness.network.tap import Fate, Message
from harness.network.toxics import Proxy

DELAY_LEASES = 2.5
SLOWER_NIGHT_LEASES = 5.0

REQUEST_WIRE = "request-wire"
REQUEST_WIRE_OF_A = "request-wire-of-a"
BEFORE_COMMIT = "before-commit"
AFTER_COMMIT = "after-commit"
REPLY_WIRE = "reply-wire"
SLOWER_NIGHT = "slower-night"
PLACES = (REQUEST_WIRE, REQUEST_WIRE_OF_A, BEFORE_COMMIT, AFTER_COMMIT, REPLY_WIRE, SLOWER_NIGHT)

_CHARGE = "processor.post-v1-charges.1."
_SLACK_MS = 10.0
"""Timers may fire a little early by another process's clock reading."""


@register
class SlowCharge(Fault):
    """Charging takes delay_leases of LOCK_TTL_MS, at one place between the worker and the processor's ledger."""

    name = "slow-charge"
    title = "the call to the payment processor outlives the lock's lease"

    @classmethod
    def proxies(cls, place: str) -> int:
        return {REQUEST_WIRE: 2, REQUEST_WIRE_OF_A: 1, REPLY_WIRE: 2}.get(place, 0)

    async def arm(self) -> None:
        bench, place = self.bench, self.bench.spec.place
        leases = bench.spec.params.get("delay_leases", DELAY_LEASES)
        if place == SLOWER_NIGHT:
            leases = bench.spec.params.get("slower_night_leases", SLOWER_NIGHT_LEASES)
        self._delay_ms = int(leases * bench.spec.ttl_ms)
        self._proxies: list[Proxy] = []
        self._answered = False
        bench.on_message.append(self._watch)
        if place in (REQUEST_WIRE, REQUEST_WIRE_OF_A, REPLY_WIRE):
            self._toxic = ("latency", "downstream" if place == REPLY_WIRE else "upstream")
            bench.at_boundary[_CHARGE + "request"] = self._slow_down
            await self._proxied("A", slow=False)
            if place != REQUEST_WIRE_OF_A:
                await self._proxied("B", slow=True)
        elif place == AFTER_COMMIT:
            await bench.stack.processor.set_rule(bench.customer, after_commit_ms=self._delay_ms)
        elif place in (BEFORE_COMMIT, SLOWER_NIGHT):
            await bench.stack.processor.set_rule(bench.customer, before_commit_ms=self._delay_ms)
        else:
            raise ValueError(f"slow-charge has no place {place!r}: one of {', '.join(PLACES)}")

    async def _proxied(self, worker: str, *, slow: bool) -> None:
        """A worker's way to the processor goes through Toxiproxy; slow: from its first connection on."""
        bench = self.bench
        toxics = [(*self._toxic, {"latency": self._delay_ms, "jitter": 0})] if slow else []
        proxy = await bench.stack.toxiproxy.proxy(bench.stack.processor.payment[worker], toxics)
        self._proxies.append(proxy)
        bench.upstreams[worker, "processor"] = proxy.address

    async def _slow_down(self, _: Message) -> Fate:
        """A's request to charge waits at its tap until its way is slow.

        Not before: a worker that asks the processor first what is paid would find its lease over with the answer, and
        B's charge in it, and would never ask to charge.
        """
        await self._proxies[0].add_toxic(*self._toxic, latency=self._delay_ms, jitter=0)
        return Fate.DELIVER

    def _watch(self, worker: str, message: Message) -> None:
        if worker != "A" or not message.boundary.startswith(_CHARGE):
            return
        if message.side == "request":
            self.bench.strike(delay_ms=self._delay_ms)
        else:
            self._over()

    def _over(self) -> None:
        """For A the charge is slow no more: it has its answer."""
        if not self._answered:
            self._answered = True
            self.bench.history.add("queue", "fault", "fault-lifted")

    async def lift(self) -> None:
        """B is through: what comes after it finds a processor as fast as ever."""
        await self.bench.stack.processor.drop_rules(self.bench.customer)
        for worker in ("A", "B"):
            self.bench.upstreams.pop((worker, "processor"), None)

    async def afterwards(self) -> None:
        """A worker that gave up before its answer came has ended by now."""
        if self.bench.struck.is_set():
            self._over()

    async def clean_up(self) -> None:
        for proxy in self._proxies:
            await self.bench.stack.toxiproxy.give_back(proxy)

    async def witness(self) -> None:
        bench, place = self.bench, self.bench.spec.place
        if not bench.struck.is_set():
            bench.not_landed("A never asked the processor to charge (no POST /v1/charges)")
            return
        left = _first(bench, "request", "tap", _CHARGE + "request")
        reply = _first(bench, "reply", "tap", _CHARGE + "reply")
        arrived = _first(bench, "charge-arrived", "processor")
        committed = _first(bench, "charge-committed", "processor")
        answered = _first(bench, "charge-answered", "processor")
        spans = {
            REQUEST_WIRE: ("processor", "the request was on its way", left, arrived),
            REQUEST_WIRE_OF_A: ("processor", "the request was on its way", left, arrived),
            BEFORE_COMMIT: ("tap", "the charge took", left, reply),
            SLOWER_NIGHT: ("tap", "the charge took", left, reply),
            AFTER_COMMIT: ("tap", "from the commit to the reply it took", committed, reply),
            REPLY_WIRE: ("tap", "the reply was on its way", answered, reply),
        }
        witness, words, start, end = spans[place]
        if start is None or end is None:
            bench.not_landed("the charge of A was never seen through at the processor and the tap")
            return
        measured_ms = end.t_ms - start.t_ms
        if measured_ms < self._delay_ms - _SLACK_MS:
            bench.not_landed(f"{words} {measured_ms:.0f} ms, not the {self._delay_ms} ms asked for")
        elif (outlived := self._not_outlived()) is not None:
            bench.not_landed(outlived)
        else:
            bench.landed(witness, f"{words} {measured_ms:.0f} ms (asked: {self._delay_ms})")

    def _not_outlived(self) -> str | None:
        """The slower night has to be longer than any lease of the subject, as the server saw it."""
        lease = self.bench.a_lease
        if self.bench.spec.place != SLOWER_NIGHT or lease is None or lease.lease_ms is None:
            return None
        if lease.lease_ms < self._delay_ms:
            return None
        return f"the lease was {lease.lease_ms:.0f} ms by the server's account, the night only {self._delay_ms} ms slow"


def _first(bench: Bench, what: str, witness: str, boundary: str | None = None) -> Event | None:
    for event in bench.history.select(what, who="A", witness=witness):
        if boundary is None or event.detail.get("boundary") == boundary:
            return event
    return None
