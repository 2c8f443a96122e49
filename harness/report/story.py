"""An experiment told in money terms: in one sentence, and in a paragraph.

The verdict and the number of charges are the experiment's own (the ledger's); the events only explain them. Where the
events do not tell, the sentence says less instead of guessing.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.report.facts import WORKERS, Charge, Facts, Lease, facts
from harness.report.results import Experiment
from harness.report.words import duration, listing, money, one_line, plural, times, token_of

_EXPECTED = {"exactly-one": "exactly one charge", "double-charge": "a double charge", "no-charge": "no charge"}


@dataclass(frozen=True, slots=True)
class _Money:
    """What an experiment's events say of the invoice that the verdict is about."""

    read: Facts
    invoice: str | None

    @property
    def charges(self) -> list[Charge]:
        return self.read.charges_of(self.invoice)

    @property
    def timed(self) -> list[Charge]:
        return [charge for charge in self.charges if charge.at_ms is not None]

    @property
    def is_next(self) -> bool:
        return bool(self.read.jobs) and self.invoice != self.read.jobs[0].invoice

    def concerns(self, named: str | None) -> bool:
        return self.read.concerns(named, self.invoice)


def _judged(verdict: str, read: Facts) -> _Money:
    """The invoice that the verdict is about, as harness/verdict.py picks it: of most charges, or of none."""
    counts = {job.invoice: len(read.charges_of(job.invoice)) for job in read.jobs}
    if verdict == "double-charge" and counts:
        return _Money(read, max(counts, key=lambda invoice: counts[invoice]))
    if verdict == "no-charge":
        return _Money(read, next((invoice for invoice, count in counts.items() if not count), None))
    return _Money(read, next(iter(counts), None))


def sentence(experiment: Experiment, read: Facts | None = None) -> str:
    """Who charged, with which token, how far apart, when the lease had expired: one sentence.

    read: the facts of its events, where somebody has them already; so of the others here.
    """
    verdict = experiment["verdict"]
    money_of = _judged(verdict, facts(experiment["events"]) if read is None else read)
    if verdict == "double-charge":
        return _double(experiment, money_of)
    if verdict == "exactly-one":
        return _one(money_of)
    if verdict == "no-charge":
        return _none(money_of)
    reason = one_line(experiment["reason"], 400).rstrip(".") or "no reason was recorded"
    if verdict == "not-applicable":
        return f"Does not apply: {reason}."
    counted = experiment["charges"]
    return f"Nothing can be concluded: {reason} (the ledger holds {plural(counted, 'charge')})."


def told(experiment: Experiment, read: Facts | None = None) -> str:
    """The sentence, from the events where they are there; else the one that the run itself has made of them."""
    kept = None if experiment["events"] else experiment.get("sentence")
    return kept or sentence(experiment, read)


def paragraph(experiment: Experiment, read: Facts | None = None) -> str:
    """The whole story: the fault, what became of the lock, the money, and what was expected."""
    read = facts(experiment["events"]) if read is None else read
    parts = [_opening(experiment, read), *_locks(read), sentence(experiment, read), *_others(experiment, read)]
    return " ".join(part for part in [*parts, _expectation(experiment)] if part)


def _others(experiment: Experiment, read: Facts) -> list[str]:
    """The customer's other invoices, a sentence each: not what the verdict is about, and paid for all the same."""
    told, judged = [], _judged(experiment["verdict"], read)
    for job in read.jobs if experiment["verdict"] not in ("inconclusive", "not-applicable") else []:
        if job.invoice != judged.invoice:
            charges = read.charges_of(job.invoice)
            count = f"charged {times(len(charges))}" if charges else "never charged"
            by = [f"{_worker(c.who)}{token_of(c.token)} {_at(c)}" for c in charges if c.at_ms is not None]
            name = "The customer's next invoice" if job is not read.jobs[0] else "The invoice before it"
            told.append(f"{name}, {one_line(job.invoice, 60)}, was {count}{': by ' + listing(by) if by else ''}.")
    return told


def _double(experiment: Experiment, judged: _Money) -> str:
    read, timed = judged.read, judged.timed
    count = max(experiment["charges"], len(judged.charges))
    head = f"The customer was charged {times(count)} for {_invoice(judged)}"
    if len(timed) < 2:
        return f"{head}: the ledger holds {plural(count, 'charge')}."
    first, second = timed[0], timed[1]
    first_ms, second_ms = first.at_ms or 0.0, second.at_ms or 0.0
    if {charge.who for charge in timed} == {first.who}:
        who = f"by {_worker(first.who)} alone, {listing([_at(charge) for charge in timed])}"
    else:
        who = f"by {listing([f'{_worker(charge.who)}{token_of(charge.token)} {_at(charge)}' for charge in timed])}"
    return f"{head}: {who}, {duration(second_ms - first_ms)} apart{_why_twice(read, first, second)}."


def _why_twice(read: Facts, first: Charge, second: Charge) -> str:
    """The clause about the lock: what had happened to it when the second charge was made."""
    at_first, at_second = first.at_ms or 0.0, second.at_ms or 0.0
    stale = [
        (lease, at)
        for who, at in ((first.who, at_first), (second.who, at_second))
        if (lease := read.lease_of(who, at)) is not None and lease.over_at(at)
    ]
    if stale:
        own, at = min(stale, key=lambda item: item[0].start_ms)
        return f"; {_gone(own)} {duration(at - (own.end_ms or 0.0))} before its charge was committed"
    lease = read.lease_of(first.who, at_second)
    if lease is None:
        return "" if read.leases else "; nobody was seen to hold a lock"
    if not lease.over_at(at_second):
        return f"; {first.who} still held the lock" if second.who != first.who else ", under the same lock"
    end, killed = lease.end_ms or 0.0, read.killed.get(first.who)
    if killed is not None and at_first <= killed <= end:
        gone = _gone(lease).replace(f"{first.who}'s", "its", 1)
        since, later = duration(killed - at_first), duration(end - killed)
        return f"; {first.who} was killed {since} after its charge, and {later} later {gone}"
    return f"; {_gone(lease)} {duration(end - at_first)} after its charge"


def _one(judged: _Money) -> str:
    read, timed = judged.read, judged.timed
    if not timed:
        return "The customer was charged exactly once."
    charge = timed[0]
    told = f"The customer was charged exactly once for {_invoice(judged)}: by {_worker(charge.who)}"
    told += f"{token_of(charge.token)} {_at(charge)}"
    lease = read.lease_of(charge.who, charge.at_ms or 0.0)
    if lease is not None and lease.over_at(charge.at_ms or 0.0):
        told += f", {duration((charge.at_ms or 0.0) - (lease.end_ms or 0.0))} after its lock was gone"
    refusals = [r for r in read.refusals if r.who in WORKERS and judged.concerns(r.invoice)]
    replays = [r for r in read.replays if judged.concerns(r.invoice)]
    if refusals:
        last = refusals[-1]
        code = one_line(last.code, 60).replace("_", " ")
        told += f"; {last.who}'s charge{token_of(last.token)} was refused at {duration(last.at_ms)} ({code})"
    elif replays:
        last_replay = replays[-1]
        told += f"; {last_replay.who} was given that same charge again at {duration(last_replay.start_ms)}, by its key"
    return told + "."


def _none(judged: _Money) -> str:
    read = judged.read
    told = f"The customer was never charged for {_invoice(judged)}"
    clauses = []
    for who in WORKERS:
        had = [span for span in read.deliveries if span.who == who and judged.concerns(span.invoice)]
        refused = [refusal for refusal in read.refusals if refusal.who == who and judged.concerns(refusal.invoice)]
        if had and who in read.killed:
            clauses.append(f"{who} was killed at {duration(read.killed[who])}")
        elif refused:
            code = one_line(refused[-1].code, 60).replace("_", " ")
            clauses.append(f"{who}'s charge{token_of(refused[-1].token)} was refused ({code})")
        elif had and had[-1].end_ms is not None:
            clauses.append(f"{who} {_ended(had[-1].status)}")
    return f"{told}: {listing(clauses)}." if clauses else f"{told}."


def _ended(status: int | None) -> str:
    if status == 0:
        return "ended with status 0 without a charge"
    if status == 75:
        return "gave up waiting for the lock"
    return "did not end by itself" if status is None else f"failed with status {status}"


def _opening(experiment: Experiment, read: Facts) -> str:
    fault, place = one_line(experiment["fault"], 80), one_line(experiment["place"], 120)
    told = f"Subject {one_line(experiment['subject'], 80)}, fault {fault} at {place}."
    struck = read.faults[0] if read.faults else None
    if struck is not None and struck.end_ms is not None:
        told += (
            f" The fault stood from {duration(struck.start_ms)} to {duration(struck.end_ms)}"
            f" ({_leases(struck.end_ms - struck.start_ms, experiment['ttl_ms'])})."
        )
    frozen = [span for span in read.freezes if span.end_ms is not None]
    if frozen:
        told += f" {frozen[0].who} was frozen for {duration((frozen[0].end_ms or 0.0) - frozen[0].start_ms)}."
    for who, at in read.killed.items():
        told += f" {who} was killed at {duration(at)}."
    return told


def _locks(read: Facts) -> list[str]:
    told = []
    for lease in read.leases[:4]:
        text = f"{lease.holder} had the lock{token_of(lease.token)} from {duration(lease.start_ms)}"
        if lease.renewals:
            text += f", renewed it {times(len(lease.renewals))}"
        if lease.end_ms is None:
            told.append(text + " and had not let it go when the history ends.")
        else:
            ends = {"expired": "its lease ran out", "released": "it let it go", "lost": "the server lost it"}
            told.append(f"{text}, until {ends.get(lease.end, lease.end)} at {duration(lease.end_ms)}.")
    if len(read.leases) > 4:
        told.append(f"The lock was granted {plural(len(read.leases) - 4, 'more time')}.")
    return told


def _expectation(experiment: Experiment) -> str:
    expected, verdict, hole = experiment["expected"], experiment["verdict"], experiment["hole"]
    if verdict in ("inconclusive", "not-applicable"):
        return ""
    if hole is not None:
        known = f"A known hole: {one_line(hole, 600).rstrip('.')}."
        return known if verdict == expected else f"{known} This time it did not show."
    return "" if verdict == expected else f"Expected: {_EXPECTED.get(expected, expected)}."


def _gone(lease: Lease) -> str:
    if lease.end == "expired":
        return f"{lease.holder}'s lease had expired"
    return f"{lease.holder}'s lock had been {lease.end}"


def _invoice(judged: _Money) -> str:
    jobs = [job for job in judged.read.jobs if job.invoice == judged.invoice]
    known = next((charge for charge in [*judged.charges, *jobs] if charge.invoice), None)
    if known is None or not known.invoice:
        return "one invoice"
    told = f"{'the next invoice, ' if judged.is_next else 'invoice '}{one_line(known.invoice, 60)}"
    if known.amount is not None and known.currency:
        told += f" ({money(known.amount, one_line(known.currency, 8))})"
    return told


def _worker(who: str) -> str:
    return who if who in WORKERS else f"an unknown caller ({one_line(who, 40)})"


def _at(charge: Charge) -> str:
    return f"at {duration(charge.at_ms or 0.0)}"


def _leases(ms: float, ttl_ms: int) -> str:
    return f"{ms / ttl_ms:.1f} leases" if ttl_ms else duration(ms)
