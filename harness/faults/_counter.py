"""The fencing counter that Redis loses with the lock, after some clean invoices of the same customer.

The counter stands at 8 when A is delivered, so A draws 9. The customer's next invoice is delivered when all is over:
as a queue does it, again only while its worker fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.bench import Bench
from harness.faults._redis_loss import RedisLoss
from harness.history import History
from harness.jobqueue import A_ENDS_WITHIN_LEASES
from harness.network.tap import Fate, Message
from harness.processes import HarnessError
from harness.profile import Profile

CLEAN_INVOICES = 8
_DELIVERIES = 12
NOT_THERE = "no key of Redis holds its fencing token: the counter is not there to be lost"

if TYPE_CHECKING:
    _Base = RedisLoss
else:
    _Base = object


class LosesCounter(_Base):
    """What is added to a loss of Redis: the invoices before, the counter's account, the invoice after."""

    @classmethod
    def inapplicable(cls, profile: Profile, place: str) -> str | None:
        return "it draws no fencing token" if not profile.fenced else super().inapplicable(profile, place)

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._token = ""
        self._mark: int | None = None

    async def arm(self) -> None:
        await self._bill_earlier_invoices()
        await super().arm()

    async def _bill_earlier_invoices(self) -> None:
        """Raises HarnessError when one of them was not charged."""
        bench = self.bench
        if bench.lock is not None:
            bench.unhear_lock()  # these leases are not the experiment's
        earlier = Bench(
            spec=bench.spec, stack=bench.stack, crew=bench.crew, profile=bench.profile, redis=bench.redis,
            watch=bench.watch, monitor=bench.monitor, database=bench.database, customer=bench.customer,
            invoice=bench.invoice, history=History(), nodes=bench.nodes,
        )  # fmt: skip
        try:
            for number in range(1, CLEAN_INVOICES + 1):
                invoice = f"{bench.invoice}-before-{number}"
                worker = await earlier.deliver("C", invoice)
                if worker is None or not await earlier.ended(worker, A_ENDS_WITHIN_LEASES * bench.lease_s):
                    raise HarnessError(f"the earlier invoice {invoice} did not come to an end")
                if worker.process.returncode != 0:
                    status, words = worker.process.returncode, worker.log.strip().splitlines()[-3:]
                    raise HarnessError(
                        f"the worker of the earlier invoice {invoice} failed with status {status}: {' / '.join(words)}"
                    )
        finally:
            await earlier.close()
        account = await bench.stack.processor.account(bench.customer)
        charged = {charge["invoice"] for charge in account.charges}
        if len(charged) != CLEAN_INVOICES or len(account.charges) != CLEAN_INVOICES:
            raise HarnessError(f"{CLEAN_INVOICES} earlier invoices came to charges of {sorted(charged)}")
        self._mark = account.mark
        bench.earlier = frozenset(charge["id"] for charge in account.charges)
        await bench.stack.processor.forget(bench.customer)  # their part of the log; ledger and mark stay
        bench.hear_lock()

    async def strike(self, message: Message) -> Fate:
        charges = self.bench.history.select("request", who="A", witness="tap")
        self._token = next((str(event.detail["token"]) for event in charges if event.detail.get("token")), "")
        return await super().strike(message)

    async def afterwards(self) -> None:
        """The customer's next invoice. A worker that was refused ends with status 0: no queue delivers it again."""
        bench = self.bench
        for _ in range(_DELIVERIES):
            worker = await bench.deliver("C", f"{bench.invoice}-next")
            if worker is None:
                return
            if not await bench.ended(worker, A_ENDS_WITHIN_LEASES * bench.lease_s):
                await bench.kill(worker)
            if worker.process.returncode == 0:
                return

    @property
    def counters(self) -> list[str]:
        """The keys that held A's token as their value."""
        assert self.before is not None
        return sorted(key for key, value in self.before.values.items() if value == self._token.encode())

    async def witness(self) -> None:
        if self.before is not None and not self.counters:
            self.bench.history.add("queue", "fault", "inapplicable", reason=NOT_THERE)
        await super().witness()

    def doubt(self) -> str | None:
        if self._mark != CLEAN_INVOICES or self._token != str(CLEAN_INVOICES + 1):
            return (
                f"the processor's mark was {self._mark} and A's token {self._token} after {CLEAN_INVOICES} clean "
                f"invoices, not {CLEAN_INVOICES} and {CLEAN_INVOICES + 1}"
            )
        if kept := [key for key in self.counters if key not in self.gone()]:
            return f"Redis still had the counter {', '.join(kept)} at {self._token} after the fault had struck"
        return super().doubt()

    def evidence(self) -> str:
        assert self.after is not None
        stands = ", ".join(
            f"{key}: {self._token} before, {self.after.values.get(key, b'nothing').decode()} after"
            for key in self.counters
        )
        return f"{super().evidence()}; the counter {stands}"
