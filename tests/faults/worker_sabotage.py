"""Faults that do not quite do what they should, for test_worker_faults.py: each must be found out."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Collection

from harness import kernel
from harness.bench import Bench
from harness.faults._acquire import at_acquire
from harness.faults.crash import Crash
from harness.faults.freeze import Freeze
from harness.faults.lost_reply import LostReply
from harness.faults.lost_reply_acquire import LostAcquire
from harness.faults.postgres_idle_session import PostgresIdleSession
from harness.faults.postgres_pooler import PostgresPooler
from harness.faults.postgres_reset import PostgresReset
from harness.faults.postgres_second import PostgresSecond
from harness.faults.postgres_terminated import PostgresTerminated
from harness.network.tap import Fate, Message
from harness.stack.postgres_databases import Session


class WokenMeanwhile(Freeze):
    """Somebody wakes A up, and puts it back to sleep."""

    async def lift(self) -> None:
        kernel.send_signal(self._pids, signal.SIGCONT)
        while kernel.ran_ns(self._pids) == self._ran_ns:
            await asyncio.sleep(0)
        kernel.send_signal(self._pids, signal.SIGSTOP)
        while not kernel.all_stopped(self._pids):
            await asyncio.sleep(0.001)
        await super().lift()


class ThawedTooEarly(Freeze):
    async def lift(self) -> None:
        kernel.send_signal(self._pids, signal.SIGCONT)
        while kernel.all_stopped(self._pids):
            await asyncio.sleep(0.001)
        await super().lift()


class ChildForgotten(Freeze):
    """A's child is not stopped with it."""

    async def strike(self, message: Message) -> Fate:
        held = asyncio.ensure_future(super().strike(message))
        while not self.bench.struck.is_set():
            await asyncio.sleep(0.001)
        kernel.send_signal(self._pids[1:], signal.SIGCONT)
        del self._pids[1:]
        self._ran_ns = kernel.ran_ns(self._pids)
        return await held


class FrozenRequestDelivered(Freeze):
    """The request is let go while A is frozen."""

    async def strike(self, message: Message) -> Fate:
        _deliver_at_once(self.bench)
        return await super().strike(message)


class FrozenRequestDeliveredUnseen(FrozenRequestDelivered):
    """And the kernel is not asked."""

    def _woken_or_leaking(self) -> str | None:
        return None


class Terminated(Crash):
    """A is asked to end."""

    async def strike(self, message: Message) -> Fate:
        process = self.bench.a.process
        process.kill(signal.SIGTERM)
        await process.wait()
        return await super().strike(message)


class ChildSurvives(Crash):
    """A is killed, its child is not."""

    async def strike(self, message: Message) -> Fate:
        process = self.bench.a.process
        tree = process.tree()
        process.kill()
        await process.wait()
        fate = await super().strike(message)
        self._pids = tree
        return fate


class CrashedRequestDelivered(Crash):
    async def strike(self, message: Message) -> Fate:
        await super().strike(message)
        return Fate.DELIVER


class ProcessorAnswers(LostReply):
    """The processor was not told to fail."""

    async def arm(self) -> None:
        await super().arm()
        await self.bench.stack.processor.drop_rules(self.bench.customer)


class NotCommitted(LostReply):
    """What is lost is an error: nothing was charged."""

    async def arm(self) -> None:
        await super().arm()
        await self.bench.stack.processor.set_rule(self.bench.customer, fail="error-before-commit", times=1, who="A")


class AcquireNotSent(LostAcquire):
    """The request is lost, not the reply to it."""

    async def arm(self) -> None:
        at_acquire(self.bench, "request", self._lose)


class NobodyTerminated(PostgresTerminated):
    patience_s = 0.3

    async def end(self, sessions: Collection[Session]) -> list[Session]:
        return list(sessions)


class NothingToTerminate(PostgresTerminated):
    async def end(self, sessions: Collection[Session]) -> list[Session]:
        return []


class NotReset(PostgresReset):
    patience_s = 0.3

    async def end(self, sessions: Collection[Session]) -> list[Session]:
        return list(sessions)


class LongTimeout(PostgresIdleSession):
    setting = "statement_timeout"
    """Not the timeout that ends a session."""
    patience_s = 1.0


class PastThePooler(PostgresPooler):
    async def arm(self) -> None:
        await super().arm()
        self.bench.upstreams.clear()


class SameInstance(PostgresSecond):
    async def arm(self) -> None:
        await super().arm()
        self.bench.upstreams.clear()


def _deliver_at_once(bench: Bench) -> None:
    async def deliver(message: Message) -> Fate:
        return Fate.DELIVER

    bench.hold_until_lifted = deliver  # type: ignore[method-assign]
