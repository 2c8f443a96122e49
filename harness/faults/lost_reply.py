"""lost-reply: the charge is made, and A does not get to know it. What A does then is A's own: give up, or try again.

A reset comes from the network, silence and an error 500 from the processor; the charge is committed before each.
"""

from __future__ import annotations

from harness.faults import Fault, register
from harness.network.tap import Fate, Message

RESET, NO_ANSWER, ERROR_500 = "reset", "no-answer", "error-500"
PLACES = (RESET, NO_ANSWER, ERROR_500)
_RULES = {NO_ANSWER: "no-answer", ERROR_500: "error-after-commit"}


@register
class LostReply(Fault):
    """A's first charge is committed, and the answer is lost with the connection, never sent, or an error 500."""

    name = "lost-reply"
    title = "the charge is committed, and worker A is not told: a reset, no answer, or an error 500"

    async def arm(self) -> None:
        bench, place = self.bench, self.bench.spec.place
        self._charge = bench.profile.points["charge"]
        self._wanted = self._under_way = 0
        if place == RESET:
            bench.at_boundary[f"{self._charge}.reply"] = self._reset
        elif place in _RULES:
            await bench.stack.processor.set_rule(bench.customer, fail=_RULES[place], times=1, who="A")
            bench.on_message.append(self._watch)
        else:
            raise ValueError(f"lost-reply has no place {place!r}: one of {', '.join(PLACES)}")

    async def _reset(self, message: Message) -> Fate:
        bench = self.bench
        self._wanted, self._under_way = len(message.raw), message.held_bytes()
        bench.strike(boundary=message.boundary)
        bench.history.add("tap", "A", "dropped", boundary=message.boundary)
        bench.history.add("tap", "A", "reset", boundary=message.boundary)
        return Fate.RESET

    def _watch(self, worker: str, message: Message) -> None:
        if worker == "A" and message.boundary == f"{self._charge}.request":
            self.bench.strike(boundary=message.boundary)

    async def lift(self) -> None:
        """Ends the processor's silence as well: it closes the connection on a worker that still waits."""
        await super().lift()
        await self.bench.stack.processor.drop_rules(self.bench.customer)

    async def witness(self) -> None:
        bench = self.bench
        if not bench.struck.is_set():
            bench.not_landed("A never asked the processor to charge (no POST /v1/charges)")
        elif not (committed := bench.history.select("charge-committed", who="A", witness="processor")):
            bench.not_landed("no charge of A's was committed, so there was no reply to lose")
        elif (doubt := self._answered()) is not None:
            bench.not_landed(doubt)
        else:
            bench.landed("processor", f"committed at {committed[0].t_ms:.0f} ms, and A was not told")

    def _answered(self) -> str | None:
        """How A may have heard of its charge after all; None when it cannot have."""
        history, place = self.bench.history, self.bench.spec.place
        if place == RESET:
            if self._under_way >= self._wanted:
                return None
            return f"the kernel counts {self._under_way} bytes under way at the reset, the answer has {self._wanted}"
        replies = [
            event
            for event in history.select("reply", who="A", witness="tap")
            if event.detail["boundary"] == f"{self._charge}.reply"
        ]
        if place == ERROR_500:
            status = replies[0].detail.get("status") if replies else None
            return None if status == 500 else f"the processor answered {status or 'nothing'}, not 500"
        arrived, answered = (
            len(history.select(what, who="A", witness="processor")) for what in ("charge-arrived", "charge-answered")
        )
        return "the processor answered every charge of A's" if replies or answered >= arrived else None
