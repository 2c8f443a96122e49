"""What the partitions share: worker A's link to Redis is cut, and only that one, through Toxiproxy.

    A -> tap -> Toxiproxy -> Redis

Toxiproxy injects; the tap sees what A sends and what comes back, and Redis says what became of a connection that the
harness itself had opened through A's proxy before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness import kernel
from harness.bench import Bench
from harness.faults import boundary_of
from harness.faults._at_boundary import AtBoundary
from harness.faults._redis_loss import sends_later
from harness.history import now_ns
from harness.network.tap import Fate, Message
from harness.network.toxics import Proxy
from harness.profile import Profile
from harness.stack import Address, StackError
from harness.stack.redis import RedisServer

_SLOWEST_CUT_LEASES = 0.5
_PROBE_TIMEOUT_S = 5.0
OPENED, RENAMED = "lockproof-opened", "lockproof-renamed"


class Probe:
    """A connection to Redis through A's proxy, known to the server by a number and a name."""

    def __init__(self, address: Address, login: Sequence[str] = ()) -> None:
        self.address = address
        self._login = login
        self._number = ""
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Raises StackError."""
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                reader, self._writer = await asyncio.open_connection(*self.address)
                hello = [self._login] if self._login else []
                for command in (*hello, ("CLIENT", "SETNAME", OPENED), ("CLIENT", "ID")):
                    self._writer.write(_command(command))
                answers = [await reader.readline() for _ in (*hello, "name", "id")][len(hello) :]
        except OSError as error:
            raise StackError(f"no connection to Redis through Toxiproxy at {self.address}: {error}") from error
        if answers[0] != b"+OK\r\n" or not answers[1].startswith(b":"):
            raise StackError(f"Redis behind Toxiproxy at {self.address} answered {answers}")
        self._number = answers[1][1:].strip().decode()

    def rename(self) -> None:
        """Sends the server a new name, which it gets or does not get."""
        if self._writer is not None:
            self._writer.write(f"CLIENT SETNAME {RENAMED}\r\n".encode())

    async def name(self, server: RedisServer) -> str | None:
        """What the server calls this connection; None when it has it no more. Raises RedisError, OSError."""
        words = (await server.text("CLIENT", "LIST", "ID", self._number)).split()
        return next((word.removeprefix("name=") for word in words if word.startswith("name=")), None)

    async def knock(self) -> str:
        """What a new connection meets: "refused", "reset", "closed", or "open" when Redis answers."""
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(*self.address)
                try:
                    writer.write(b"PING\r\n")
                    answer = await reader.readline()
                finally:
                    writer.close()
        except ConnectionRefusedError:
            return "refused"
        except ConnectionResetError:
            return "reset"
        except TimeoutError:
            return "silent"
        return "open" if answer else "closed"

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()


def _command(words: Sequence[str]) -> bytes:
    """A command as Redis reads it, whatever is in its words (redis.io: RESP, arrays of bulk strings)."""
    each = b"".join(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words)
    return b"*%d\r\n%s" % (len(words), each)


@dataclass(slots=True)
class _Asked:
    """One request of A's to Redis: when the tap had it, and whether it was answered before the partition healed."""

    name: str
    t_ms: float
    answered: bool = False


class Partition(AtBoundary):
    """Cuts A's Redis link as its charge leaves, or as the reply to it comes; heals it when B is through."""

    cut_off: ClassVar[str]
    """What is said of the connection that Redis had before: the evidence's first half."""

    @classmethod
    def proxies(cls, place: str) -> int:
        return 1

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        if "redis" not in profile.links:
            return "it uses no Redis"
        boundary = boundary_of(profile, place)
        if boundary is not None and not sends_later(profile, "redis", boundary):
            return "it sends nothing to Redis after that"
        return super().inapplicable(profile, place)

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.proxy: Proxy | None = None
        self.probe: Probe | None = None
        self._cut_ns = self._lifted_ns = 0
        self._connects = (0, 0)
        self._stood = (0, 0)
        """A's connections right before the cut, and when it healed, by the kernel."""
        self._what_is_wrong: str | None = None

    async def arm(self) -> None:
        await super().arm()
        bench = self.bench
        self.proxy = await bench.stack.toxiproxy.proxy(bench.redis.address)
        self.probe = Probe(self.proxy.address, bench.redis.login)
        await self.probe.open()
        bench.upstreams["A", "redis"] = self.proxy.address

    async def strike(self, message: Message) -> Fate:
        bench = self.bench
        bench.strike(boundary=message.boundary)
        assert self.proxy is not None
        assert self.probe is not None
        stood = self._standing()
        try:
            await self.cut(self.proxy)
        except StackError as error:
            bench.history.add("queue", "fault", "harness-failed", reason=f"A's link to Redis could not be cut: {error}")
        self.probe.rename()
        self._cut_ns = now_ns()
        self._connects = bench.link("A", "redis").accepted, 0
        self._stood = stood, stood
        return Fate.DELIVER

    def _standing(self) -> int:
        return kernel.connections_to(self.bench.link("A", "redis").port)

    async def cut(self, proxy: Proxy) -> None:
        """Cuts the link. Raises StackError."""
        raise NotImplementedError

    async def heal(self, proxy: Proxy) -> None:
        """Makes it whole again. Raises StackError."""
        raise NotImplementedError

    async def seen_cut(self, probe: Probe) -> str | None:
        """What Redis, or a new connection, says against the link being cut; None when nothing does."""
        raise NotImplementedError

    async def seen_healed(self, probe: Probe) -> str | None:
        """What there is to say against it having been cut in this way, once it is whole again."""
        return None

    async def lift(self) -> None:
        bench = self.bench
        if not self._cut_ns or self.proxy is None or self.probe is None:
            await super().lift()
            return
        self._connects = self._connects[0], bench.link("A", "redis").accepted
        self._stood = self._stood[0], self._standing()
        self._what_is_wrong = await self.seen_cut(self.probe)
        self._lifted_ns = now_ns()
        await super().lift()
        await self.heal(self.proxy)
        self._what_is_wrong = self._what_is_wrong or await self.seen_healed(self.probe)

    async def witness(self) -> None:
        if self.never_struck():
            return
        if (doubt := self._doubt()) is not None:
            self.bench.not_landed(doubt)
        else:
            self.bench.landed("redis", f"{self.cut_off}; {self._tried()}, and had no answer")

    def _doubt(self) -> str | None:
        bench = self.bench
        took_s = (self._cut_ns - bench.struck_ns) / 1e9
        if took_s > _SLOWEST_CUT_LEASES * bench.lease_s:
            return f"cutting the link took {took_s * 1000:.0f} ms, more than half a lease"
        if self._what_is_wrong is not None:
            return self._what_is_wrong
        if answered := [asked.name for asked in self._crossing() if asked.answered]:
            return f"Redis answered A's {answered[0]} while A should have been cut off"
        if not self._tried():
            return "A sent nothing to Redis while it was cut off, and had no connection that ended"
        lease = bench.a_lease
        renewed = [] if lease is None else [at for at in lease.renewals_ns if self._cut_ns < at < self._lifted_ns]
        if len(renewed) > self._under_way():
            return "Redis saw A renew its lease while A should have been cut off"
        return None

    def _asked(self) -> list[_Asked]:
        """What A asked Redis until the partition healed, by the tap's account."""
        history = self.bench.history
        asked: dict[str, _Asked] = {}
        for event in history:
            name = str(event.detail.get("boundary", ""))
            ours = event.witness == "tap" and event.who == "A" and name.startswith("redis.")
            if not ours or event.t_ms >= history.t_ms(self._lifted_ns):
                continue
            message = name.rpartition(".")[0]
            if event.what == "request":
                asked[message] = _Asked(message, event.t_ms)
            elif event.what == "reply" and message in asked:
                asked[message].answered = True
        return list(asked.values())

    def _crossing(self) -> list[_Asked]:
        """What A asked while it was cut off. Cutting takes a while: what it asked meanwhile counts where unanswered."""
        began, cut = self.bench.history.t_ms(self.bench.struck_ns), self.bench.history.t_ms(self._cut_ns)
        return [asked for asked in self._asked() if asked.t_ms > cut or (asked.t_ms > began and not asked.answered)]

    def _under_way(self) -> int:
        """How many requests may have got through as the link was cut: they were sent before, and had no answer."""
        cut = self.bench.history.t_ms(self._cut_ns)
        return sum(asked.t_ms <= cut and not asked.answered for asked in self._asked())

    def _tried(self) -> str:
        asked = self._crossing()
        before, after = self._connects
        sent = f"A sent {len(asked)} messages" if asked else ""
        connected = f"A connected {after - before} times anew" if after > before else ""
        told = " and ".join(part for part in (sent, connected) if part)
        if not told and self._stood[0] > self._stood[1] == 0:  # it saw that, and had no need to try
            return f"A's {self._stood[0]} connections had ended, so that it sent nothing"
        return told

    async def clean_up(self) -> None:
        if self.probe is not None:
            self.probe.close()
        if self.proxy is not None:
            await self.bench.stack.toxiproxy.give_back(self.proxy)
