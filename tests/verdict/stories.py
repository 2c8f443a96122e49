"""Hypothesis strategies: stories whose witnesses agree, and what may be wrong with one.

A story is drawn as an experiment goes: A takes its lock and charges, the fault strikes, B comes and may get the lock,
A is let go, C comes. What each of them makes of it at the processor is drawn, not derived: sound and broken subjects
alike, and many that nobody would write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from .story import BILL, Came, Held, Row, Sent, Story, Worker

TTL_MS = 1000


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """A story in which nothing contradicts anything."""

    def at(since: int, until: int) -> int:
        return draw(st.integers(since, max(since, until)))

    struck = at(30, 90)
    let_go = struck + draw(st.sampled_from([20, 400, 900, 1000, 1100, 2500])) + at(0, 60)
    a_held = _lease_of_a(draw, struck, let_go)
    late = a_held is not None and draw(st.integers(0, 4)) == 0
    """A takes its lock only when B, that came after the strike, has let go of it."""
    # B
    b_began = at(10, struck)
    b_ended = at(b_began + 30, let_go - 1 if draw(st.booleans()) else let_go + 500)
    free = 0 if a_held is None else a_held.over or let_go + 700
    leases = [] if a_held is None else [a_held]
    if late:
        b_began, b_ended = struck + 1, struck + 60
        took, left = sorted((at(b_began, b_ended), at(b_began, b_ended)))
        leases = [Held("B", took, left, "lock-released"), Held("A", at(left, left + 12))]
    elif draw(st.booleans()) and max(free, b_began) < b_ended:
        granted = at(max(free, b_began), b_ended)
        leases.append(Held("B", granted, at(granted, b_ended), "lock-released"))
    sent = [_message(draw, b_began, b_ended) for _ in range(draw(st.integers(0, 5)))]
    # the charges
    came: list[Came] = []
    rows: list[Row] = []
    a_ended = let_go + at(20, 300)
    c_began = max(a_ended, b_ended) + 5
    c_ended = c_began + draw(st.sampled_from([20, 400, 10_999, 11_000, 12_100]))
    spans = {"A": (draw(st.sampled_from([20, let_go])), a_ended), "B": (b_began, b_ended), "C": (c_began, c_ended)}
    mark = draw(st.none() | st.integers(1, 3))
    for who in "ABC":
        if draw(st.booleans()):
            _charge(draw, who, spans[who], mark, sent, came, rows)
    workers = (Worker("A", 0, a_ended), Worker("B", b_began, b_ended), Worker("C", c_began, c_ended))
    return Story(
        workers=workers,
        sent=tuple(sorted(sent, key=lambda one: one.at)),
        came=tuple(came),
        ledger=tuple(rows),
        log=tuple(rows),
        held=tuple(leases),
        struck=struck,
        let_go=let_go,
        judged=max(c_ended, let_go, *(one.at for one in sent), *(row.at for row in rows), *(c.at for c in came)) + 3,
        lock=draw(st.sampled_from(["lock:{customer}", "advisory lock 7", None])) if not leases else "lock:{customer}",
        stall_ms=draw(st.sampled_from([0.0, 0.0, 100.0, 250.0])),
        meddled=draw(st.booleans()),
    )


def _lease_of_a(draw: st.DrawFn, struck: int, let_go: int) -> Held | None:
    granted = draw(st.integers(2, 100))
    way = draw(st.sampled_from(["never", "lock-expired", "lock-lost", "lock-released", "kept"]))
    if way == "never":
        return None
    if way == "kept":
        return Held("A", granted)
    ends = {"lock-expired": granted + TTL_MS, "lock-lost": struck + 5, "lock-released": granted + 10}
    return Held("A", granted, ends[way], way)


def _message(draw: st.DrawFn, began: int, ended: int) -> Sent:
    at = draw(st.integers(began, ended))
    return Sent("B", at, draw(st.none() | st.integers(at, ended + 1500)))


def _charge(
    draw: st.DrawFn,
    who: str,
    span: tuple[int, int],
    mark: int | None,
    sent: list[Sent],
    came: list[Came],
    rows: list[Row],
) -> None:
    """One request to charge and what became of it."""
    left = draw(st.integers(span[0], max(span)))
    if draw(st.integers(0, 9)) == 0:
        sent.append(Sent(who, left, charge=True, dropped=True))
        return
    there = left + draw(st.integers(0, 30))
    outcome = draw(st.sampled_from(["charge-committed", "charge-committed", "charge-refused", "charge-replayed"]))
    stale = mark is not None and any(row.at >= there for row in rows)
    if outcome == "charge-committed" and not stale:
        at = there + draw(st.integers(0, 9))
        token = mark
        rows.append(Row(f"ch-{len(rows) + 1}", who, at, token))
        answered, status = at + 1, 201
    else:
        outcome, token = ("charge-refused" if stale else outcome), None
        answered, status = there + 1, 409
    came.append(Came(who, there, token, outcome))
    reply = draw(st.sampled_from([answered, answered, None]))
    sent.append(Sent(who, left, reply, charge=True, status=None if reply is None else status))


# --- what may be wrong ---

Flaw = Callable[[Story, Callable[[Any], Any]], Story]
"""(story, draw) -> the same with something wrong; it comes back as it was where there is nothing to spoil."""


def _with_row(story: Story, pick: Callable[[Any], Any], change: Callable[[Row], Row], *, log: bool) -> Story:
    """A change of one row of the ledger, and of the log's where the two are to agree."""
    if not story.ledger:
        return story
    one = pick(st.sampled_from(story.ledger))
    ledger = tuple(change(row) if row is one else row for row in story.ledger)
    return replace(
        story, ledger=ledger, log=tuple(change(r) if r == one else r for r in story.log) if log else story.log
    )


def _foreign(field: str) -> Flaw:
    other = replace(BILL, **{field: 17 if field == "amount" else "foreign"})  # type: ignore[arg-type]
    return lambda story, pick: _with_row(story, pick, lambda row: replace(row, bill=other), log=True)


def _worker(story: Story, pick: Callable[[Any], Any], **change: Any) -> Story:
    one = pick(st.sampled_from(story.workers))
    return replace(story, workers=tuple(replace(w, **change) if w is one else w for w in story.workers))


def _arrivals(story: Story, pick: Callable[[Any], Any], change: Callable[[Came], Came | None]) -> Story:
    if not story.came:
        return story
    one = pick(st.sampled_from(story.came))
    came = (change(c) if c is one else c for c in story.came)
    return replace(story, came=tuple(c for c in came if c is not None))


def _departures(story: Story, pick: Callable[[Any], Any], change: Callable[[Sent], Sent | None]) -> Story:
    charges = [sent for sent in story.sent if sent.charge and not sent.dropped]
    if not charges:
        return story
    one = pick(st.sampled_from(charges))
    sent = (change(s) if s is one else s for s in story.sent)
    return replace(story, sent=tuple(s for s in sent if s is not None))


def _late_clock(story: Story, pick: Callable[[Any], Any]) -> Story:
    """The tap's clock is ahead of the processor's by more than the tolerance."""
    ahead = pick(st.integers(6, 500))
    return _departures(story, pick, lambda s: replace(s, at=s.at + 40 + ahead, answered=None, status=None))


def _stale_token(story: Story, pick: Callable[[Any], Any]) -> Story:
    if not story.ledger:
        return story
    spoilt = _with_row(story, pick, lambda row: replace(row, token=1), log=True)
    read = Came("C", max(0, min(row.at for row in spoilt.ledger) - pick(st.integers(0, 12))), 2, None, read=True)
    return replace(spoilt, came=(*spoilt.came, read))


FLAWS: dict[str, Flaw] = {
    **{f"a charge with a foreign {field}": _foreign(field) for field in ("customer", "invoice", "amount", "currency")},
    "one charge twice in the ledger": lambda s, _: replace(s, ledger=s.ledger + s.ledger[:1]),
    "a charge of which the log knows nothing": lambda s, _: replace(s, log=s.log[1:]),
    "a charge that the ledger has lost": lambda s, _: replace(s, ledger=s.ledger[1:]),
    "a charge that is another's by the log": lambda s, p: _with_row(s, p, lambda r: replace(r, who="?"), log=False),
    "a charge at another time by the log": lambda s, p: _with_row(
        s, p, lambda r: replace(r, at=r.at + p(st.integers(0, 9))), log=False
    ),
    "an arrival that nobody noted": lambda s, p: _arrivals(s, p, lambda _: None),
    "an arrival of which nothing came": lambda s, p: _arrivals(
        s, p, lambda c: replace(c, outcome=c.outcome if c.outcome == "charge-committed" else None)
    ),
    "a charge that went past the tap": lambda s, p: _departures(s, p, lambda _: None),
    "an arrival more than the tap saw leave": lambda s, _: replace(
        s, came=s.came + tuple(replace(c, at=c.at + 3, outcome="charge-refused") for c in s.came[:1])
    ),
    "a charge that arrived before it was sent": _late_clock,
    "an answer that tells of a charge that is not there": lambda s, p: _departures(
        s, p, lambda one: replace(one, status=201) if one.status == 409 else one
    ),
    "an answer before there was a charge": lambda s, p: _departures(
        s, p, lambda one: replace(one, answered=one.at - p(st.integers(0, 9))) if one.status == 201 else one
    ),
    "a token that was too low": _stale_token,
    "nothing landed": lambda s, _: replace(s, landed_by=frozenset()),
    "only the injector saw it land": lambda s, _: replace(s, landed_by=frozenset({"tap"}), meddled=True),
    "only the queue saw it land": lambda s, _: replace(s, landed_by=frozenset({"queue", "worker"})),
    "it did not land": lambda s, _: replace(s, not_landed=True),
    "no strike": lambda s, _: replace(s, struck=None),
    "no end of the fault": lambda s, _: replace(s, let_go=None),
    "an end before the strike": lambda s, p: replace(s, let_go=(s.struck or 0) - p(st.integers(0, 9))),
    "no count": lambda s, _: replace(s, judged=None),
    "a count too early": lambda s, p: replace(s, judged=max(w.ended or 0 for w in s.workers) - p(st.integers(0, 9))),
    "no end of a worker": lambda s, p: _worker(s, p, ended=None),
    "a worker that hung": lambda s, p: _worker(s, p, hung=True),
    "no last delivery": lambda s, _: replace(s, workers=tuple(w for w in s.workers if w.who != "C")),
    "a stall": lambda s, _: replace(s, stall_ms=250.1),
    "a dead server": lambda s, _: replace(s, died=True),
    "a processor that came back": lambda s, _: replace(s, restarted=True),
    "a worker that did not start": lambda s, _: replace(s, unstarted=True),
    "a harness that failed": lambda s, _: replace(s, failed=True),
    "two who hold the lock": lambda s, p: replace(
        s, held=(*s.held, *(Held("C", h.granted + p(st.integers(0, 9))) for h in s.held[:1]))
    ),
    "a lease that nobody saw end": lambda s, _: replace(s, held=tuple(replace(h, over=None) for h in s.held)),
    "a lease over before it began": lambda s, p: replace(
        s, held=tuple(replace(h, over=h.granted - p(st.integers(0, 9))) for h in s.held[:1])
    ),
}  # fmt: skip

HARMLESS = {
    "an answer before there was a charge",
    "a charge at another time by the log", "a token that was too low", "an end before the strike",
    "a count too early", "two who hold the lock", "a lease over before it began",
    "a lease that nobody saw end", "an arrival that nobody noted",
}  # fmt: skip
"""Flaws that may be none: within the clock's error, or nobody has the lock later, or the tap saw the refusal."""


@st.composite
def flawed(draw: st.DrawFn, at_most: int = 3) -> Story:
    """A story with up to so many things wrong."""
    story = draw(stories())
    for name in draw(st.lists(st.sampled_from(sorted(FLAWS)), max_size=at_most)):
        story = FLAWS[name](story, draw)
    return story
