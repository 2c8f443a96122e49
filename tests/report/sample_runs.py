"""Made-up runs around the sample histories: passing, failing, swept, empty, partial, hostile, huge, repeated."""

from __future__ import annotations

import json
import random
import re
from typing import Any, cast

import recordings
import sample_histories as h
from sample_histories import TTL_MS, Events

from harness.report.results import Experiment, Run, Subject

VARIANTS = ("naive-ttl", "long-ttl", "watchdog", "fencing", "watchdog-fencing", "fenced-read", "idempotency-key")
PLACES = ("request-wire", "request-wire-of-a", "before-commit", "after-commit", "reply-wire", "slower-night")
HOLES = {
    "naive-ttl": set(PLACES),
    "long-ttl": {"slower-night"},
    "fencing": {"request-wire", "after-commit", "reply-wire"},
}
WHY = {
    "naive-ttl": "nothing renews the lease and nothing stops the first worker once it has run out",
    "long-ttl": "five leases are longer than a lease four times as long",
    "fencing": "a token orders charges, it does not count them: both arrive in order of their tokens",
}
LABELS = ("redis.set.1", "redis.get.1", "processor.post-v1-charges.1", "redis.set.2", "redis.evalsha.1")
BOUNDARIES = [f"{label}.{side}" for label in LABELS for side in ("request", "reply")]
FAULTS = ("freeze", "hold", "crash", "lose")


def experiment(
    subject: str,
    fault: str = "slow-charge",
    place: str = "before-commit",
    *,
    verdict: str = "exactly-one",
    events: Events | None = None,
    scenario: str | None = None,
    **changes: Any,
) -> Experiment:
    """One experiment with everything else as a run would have it."""
    scenario = scenario or fault
    history = h.slow_watchdog() if events is None else events
    made: dict[str, Any] = {
        "id": f"{scenario}/{subject}/{place}" if scenario == fault else f"{scenario}/{subject}/{fault}@{place}",
        "scenario": scenario,
        "subject": subject,
        "fault": fault,
        "place": place,
        "verdict": verdict,
        "expected": "exactly-one",
        "hole": None,
        "reason": "",
        "charges": {"double-charge": 2, "no-charge": 0, "not-applicable": 0}.get(verdict, 1),
        "landed": True,
        "contended": True,
        "attempts": [{"verdict": verdict, "reason": ""}],
        "run": 1,
        "ttl_ms": TTL_MS,
        "recovery_s": None,
        "wall_s": 3.6,
        "replay": f"pytest scenarios/ --harness-replay {subject}:{fault}@{place}",
        "workers": [{"name": name, "exit": 0, "log": ""} for name in ("A", "B", "C")],
        "events": history,
    }
    made |= changes
    made["id"] += f"/run-{made['run']}" if made["run"] > 1 else ""
    return cast(Experiment, made)


def subject(name: str, *, kind: str = "variant", boundaries: list[str] | None = None, **changes: Any) -> Subject:
    made: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "source": f"harness/variants/{name.replace('-', '_')}.py:24",
        "lock": "redis lock:cus_ada",
        "lease_ms": TTL_MS * (4 if name == "long-ttl" else 1),
        "boundaries": BOUNDARIES if boundaries is None else boundaries,
        "unstable": [],
    }
    if name.startswith("watchdog"):
        made["margin"] = {"worst_gap_ms": 351.2, "lease_ms": TTL_MS, "renewals": 42}
    return cast(Subject, made | changes)


def run(experiments: list[Experiment], subjects: list[Subject] | None = None, **changes: Any) -> Run:
    names = dict.fromkeys(e["subject"] for e in experiments)
    made: dict[str, Any] = {
        "schema": 2,
        "partial": False,
        "seed": 20411,
        "started": "2026-11-29T15:40:12+00:00",
        "wall_s": 14.2,
        "ttl_ms": TTL_MS,
        "host": {"os": "Linux 6.1 x86_64", "python": "3.11.7", "cpus": 2},
        "commit": "8007652c0ffee",
        "stack": {"kind": "local", "redis": "Valkey 9.1.2", "toxiproxy": "stand-in 2.12.0", "postgres": "18.6"},
        "subjects": [subject(name) for name in names] if subjects is None else subjects,
        "experiments": experiments,
        "faults": {"slow-charge": {"title": "the charge takes longer than the lease"}},
    }
    return cast(Run, made | changes)


def passing() -> Run:
    """The built-in variants as they must come out: known holes reproduced, everything else exactly one."""
    experiments = [_slow(name, place) for name in VARIANTS for place in PLACES]
    for name in ("naive-ttl", "fencing"):
        for place in ("charge-request", "charge-reply", "record-request"):
            experiments.append(_freeze(name, place))
    experiments.append(experiment("naive-ttl", "crash", "charge-request", events=h.crashed(), recovery_s=1.037))
    experiments.append(experiment("naive-ttl", "crash", "record-reply", events=h.crashed(), recovery_s=0.94))
    slow = h.crashed(free_at_ms=4003)
    experiments.append(experiment("long-ttl", "crash", "charge-request", events=slow, recovery_s=4.038))
    experiments.append(experiment("watchdog", "crash", "charge-request", events=h.crashed(), recovery_s=1.041))
    at_once = h.crashed(free_at_ms=9, link="postgres")
    experiments.append(experiment("pg-advisory", "crash", "charge-request", events=at_once, recovery_s=0.043))
    reason = "PgBouncer is not installed here (Debian: pgbouncer)"
    pooled = experiment("pg-advisory", "pooler", "transaction", verdict="not-applicable", reason=reason, events=[])
    subjects = [subject(name) for name in VARIANTS]
    subjects.append(subject("pg-advisory", lock="postgres advisory lock", lease_ms=None))
    return run([*experiments, pooled], subjects)


def broken() -> Run:
    """A user's worker that charges twice, with the control beside it; one hole that closed, one inconclusive."""
    name, source = "myapp.billing:charge_invoice", "myapp/billing.py:41"
    mine = [
        experiment(name, place=place, verdict="double-charge", events=h.slow_double(place=place))
        for place in ("request-wire", "before-commit", "reply-wire")
    ]
    mine.append(experiment(name, place="after-commit", verdict="double-charge", events=h.slow_after_commit()))
    mine.append(experiment(name, "freeze", "charge-request", verdict="double-charge", events=h.frozen(tokens=False)))
    mine.append(experiment(name, "crash", "charge-request", verdict="no-charge", events=h.never_charged()))
    mine.append(experiment(name, "flushall", "charge-request", verdict="double-charge", events=h.lock_lost()))
    stall = "the machine stood still for 612 ms, over a quarter of the lease"
    tries = [{"verdict": "inconclusive", "reason": stall}] * 3
    mine.append(
        experiment(
            name, "freeze", "charge-reply", verdict="inconclusive", reason=stall, attempts=tries, events=h.stalled()
        )
    )
    control = [_slow("naive-ttl", place) for place in ("request-wire", "before-commit", "after-commit")]
    closed = experiment("naive-ttl", place="reply-wire", expected="double-charge", hole=WHY["naive-ttl"])
    subjects = [subject(name, kind="callable", source=source), subject("naive-ttl")]
    return run([*mine, *control, closed], subjects)


def swept(names: tuple[str, ...] = ("naive-ttl", "fencing")) -> Run:
    """A full sweep: every boundary, every fault."""
    experiments = []
    for name in names:
        for index, boundary in enumerate(BOUNDARIES):
            for fault in FAULTS:
                double = fault != "lose" and index in (4, 5) and not (name == "fencing" and index == 4)
                events = h.frozen(tokens=not double, place=boundary) if fault != "crash" else h.crashed()
                declared = {"expected": "double-charge", "hole": WHY[name]} if double else {}
                verdict = "double-charge" if double else "exactly-one"
                experiments.append(
                    experiment(
                        name, fault, boundary, verdict=verdict, events=events, scenario="every-boundary", **declared
                    )
                )
    return run(experiments)


def empty() -> Run:
    return run([], [])


def partial() -> Run:
    """Interrupted after a few experiments, one of them under way."""
    started = experiment("watchdog", verdict="inconclusive", reason="the run was interrupted", events=[], charges=0)
    started["workers"] = [{"name": "A", "exit": None, "log": ""}]
    return run([_slow("naive-ttl", "before-commit"), _slow("long-ttl", "before-commit"), started], partial=True)


HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>",
    "\x1b[31mred\x1b[0m \x07bell \x00nul \r\n::error::forged",
    "safe \u202egnp.exe\u202c \u2066isolate\u2069 \u200b zero width",
    "\u2028line\u2029paragraph \ud800 lone surrogate \U000e0041 tag",
    "`|*_{}[]()#!<b>@everyone ${{ secrets.X }} ]]> <!-- -->",
    "x" * 20_000,
)


def hostile() -> Run:
    """Strings that try to break out: from workers' logs, events, names and reasons."""
    history = h.slow_double()
    for number, text in enumerate(HOSTILE):
        detail = {"event": text, text[:40] or "key": text}
        history.append({"t_ms": 100.0 + number, "witness": "worker", "who": "A", "what": "said", **detail})
    workers = [{"name": "A", "exit": 1, "log": "\n".join(HOSTILE)}, {"name": "B", "exit": None, "log": HOSTILE[0]}]
    name = "node '</script>" + HOSTILE[2]
    mine = [
        experiment(name, place=HOSTILE[0], verdict="double-charge", events=history, workers=workers, reason=HOSTILE[3]),
        experiment(
            name, HOSTILE[4], HOSTILE[1], verdict="not-applicable", reason="".join(HOSTILE), scenario="slow-charge"
        ),
        experiment(name, "freeze", "b" * 300, verdict="inconclusive", reason=HOSTILE[1], replay=HOSTILE[4]),
    ]
    owned = subject(name, kind="command", source=f"{HOSTILE[4]}:7", lock=HOSTILE[3], unstable=[HOSTILE[2]])
    return run(mine, [owned], commit=HOSTILE[0], host={"os": HOSTILE[1], "python": HOSTILE[0], "cpus": 2})


def thousand(count: int = 1000) -> Run:
    """A thousand experiments, some of them failures, with the events of real ones: as many, as long, and with times and
    ids of their own, so that they do not compress better than a real run's."""
    draw = random.Random(2041)
    real = [recordings.load(name) for name in recordings.NAMES]

    def events_like(e: Experiment) -> Events:
        told = json.dumps(e["events"])
        ids = {old: f"{draw.getrandbits(4 * len(old)):0{len(old)}x}" for old in sorted(set(_HEX.findall(told)))}
        text = _HEX.sub(lambda found: ids[found.group()], told)
        at, events = 0.0, []
        for event in json.loads(text):
            at += draw.uniform(0, 20)
            events.append({**event, "t_ms": round(at, 3)})
        return events

    experiments = []
    for number in range(count):
        verdict = "double-charge" if number % 5 == 0 else "exactly-one"
        place = f"redis.get.{number // 28}.request"
        experiments.append(
            experiment(
                VARIANTS[number % len(VARIANTS)],
                FAULTS[number % 4],
                place,
                verdict=verdict,
                events=events_like(real[number % len(real)]),
                scenario="every-boundary",
            )
        )
    return run(experiments)


_HEX = re.compile(r"\b[0-9a-f]{6,32}\b")
"""Ids in events: of customers, charges and owners."""


def repeated(runs: int = 20) -> Run:
    """The same experiments many times, with jitter."""
    experiments = []
    for number in range(1, runs + 1):
        experiments.append(_slow("naive-ttl", "before-commit", run=number, jitter={"start_ms": number}))
        experiments.append(_slow("watchdog", "before-commit", run=number, jitter={"start_ms": number}))
        tight = number == 7
        verdict = "double-charge" if tight else "exactly-one"
        events = h.slow_double() if tight else h.slow_fenced()
        experiments.append(experiment("fencing", run=number, verdict=verdict, events=events))
    return run(experiments)


def compose() -> Run:
    """The passing run's first experiments on the compose stack, where one came out differently."""
    stack = {"kind": "compose", "redis": "Redis 8.2", "toxiproxy": "2.12.0", "postgres": "18.1"}
    experiments = [_slow(name, place) for name in VARIANTS[:3] for place in PLACES[:3]]
    experiments[5] = experiment("long-ttl", place=PLACES[2], verdict="double-charge", events=h.slow_double())
    return run(experiments, stack=stack, started="2026-11-29T15:50:00+00:00")


def all_runs() -> dict[str, Run]:
    return {
        "passing": passing(), "broken": broken(), "swept": swept(), "empty": empty(), "partial": partial(),
        "hostile": hostile(), "repeated": repeated(),
    }  # fmt: skip


def _slow(name: str, place: str, **changes: Any) -> Experiment:
    if place in HOLES.get(name, ()):
        within = name == "fencing"
        events = h.slow_after_commit() if within else h.slow_double(place=place)
        declared = {"expected": "double-charge", "hole": WHY[name]}
        return experiment(name, place=place, verdict="double-charge", events=events, **declared, **changes)
    events = h.slow_fenced() if "fenc" in name else h.slow_watchdog()
    return experiment(name, place=place, events=events, **changes)


def _freeze(name: str, place: str) -> Experiment:
    double = name == "naive-ttl" or place != "charge-request"
    declared = {"expected": "double-charge", "hole": WHY[name]} if double else {}
    events = h.frozen(tokens=not double, place=place)
    verdict = "double-charge" if double else "exactly-one"
    return experiment(name, "freeze", place, verdict=verdict, events=events, **declared)
