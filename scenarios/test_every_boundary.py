"""Every message of worker A, every fault: nothing random, nothing missed within "one fault".

A boundary is link.label.n.side (harness/network/tap.py); scripts are told apart by four digits of their SHA-1:
eval-fcd5 lets the lock go, eval-0a4b extends the lease (so it is a boundary only while the charge is held).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness import Hole, Sweep, sweeps

FREEZE, HOLD, CRASH, LOSE = "freeze", "hold", "crash", "lose"
LATE, ENDED = (FREEZE, HOLD), (CRASH, LOSE)

PAID = "redis.get.1.reply"
CHARGE = "processor.post-v1-charges.1.request"
CHARGED = "processor.post-v1-charges.1.reply"
RENEWALS = [f"redis.eval-0a4b.{n}.{side}" for n in (1, 2, 3) for side in ("request", "reply")]

Declared = Iterator[tuple[tuple[str, str], Hole]]


def holes(faults: Iterable[str], boundaries: Iterable[str], reason: str, verdict: str = "double-charge") -> Declared:
    """The same hole at several boundaries, with several faults."""
    for boundary in boundaries:
        for fault in faults:
            yield (fault, boundary), Hole(reason, verdict)


_STALE_READ = (
    "A acts on an answer, not paid, that went stale while its lease ran out, and checks nothing before it charges"
)
_LATE_CHARGE = "A's charge reaches the processor after B's, and nothing on it says that A's lease had run out"
_UNRECORDED = (
    "A's charge is committed and not recorded when its lease runs out: B reads that nothing is paid and charges"
)
_ENDED = (
    "A ends between the charge and the record of it: once the lock is free B reads that nothing is paid and charges"
)
_FROZEN_DOG = (
    "the watchdog is frozen with its process, and a charge on its way cannot be called back: the lease runs out"
)
_HELD_DOG = "a renewal that is held up renews nothing: the lease runs out while the charge is on its way, and B charges"
_NEWER_TOKEN = (
    "A's charge is committed and not recorded when its lease runs out; B's token is newer, so B's is accepted"
)

_NAIVE = {
    **dict(holes(LATE, [PAID], _STALE_READ)),
    **dict(holes(LATE, [CHARGE], _LATE_CHARGE)),
    **dict(holes(LATE, [CHARGED, "redis.set.2.request"], _UNRECORDED)),
    **dict(holes(ENDED, [CHARGED, "redis.set.2.request"], _ENDED)),
}

HOLES = {
    "naive-ttl": _NAIVE,
    "long-ttl": _NAIVE,
    "watchdog": {
        **dict(holes([FREEZE], [CHARGE, CHARGED, "redis.set.2.request", *RENEWALS], _FROZEN_DOG)),
        **dict(holes([HOLD], RENEWALS, _HELD_DOG)),
        **dict(holes(ENDED, [CHARGED, "redis.set.2.request"], _ENDED)),
    },
    "fencing": {
        **dict(holes(LATE, [CHARGED, "redis.set.1.request"], _NEWER_TOKEN)),
        **dict(holes(ENDED, [CHARGED, "redis.set.1.request"], _ENDED)),
    },
    "watchdog-fencing": {
        **dict(holes([FREEZE], [CHARGED, "redis.set.1.request"], _NEWER_TOKEN)),
        **dict(holes(ENDED, [CHARGED, "redis.set.1.request"], _ENDED)),
    },
    "reserve-confirm-naive": {
        **dict(
            holes(LATE, [PAID], "A's answer, no intent, is stale: it writes over B's intent and charges under its own")
        ),
        **dict(
            holes(
                LATE, ["redis.set.2.request"], "A's intent is written over B's, blindly; A then charges under its own"
            )
        ),
        **dict(
            holes(
                ENDED,
                ["redis.set.2.reply", "redis.eval-fcd5.1.request", "redis.eval-fcd5.1.reply", CHARGE],
                "A ends with its intent written and nothing charged; nobody ever recovers it",
                "no-charge",
            )
        ),
    },
    "pg-advisory": dict(
        holes(
            ENDED,
            [CHARGED, "postgres.insert.1.request"],
            "A's session ends with it, so its lock is free at once: " + _ENDED,
        )
    ),
    "pg-advisory-xact": dict(
        holes(
            ENDED,
            [CHARGED, "postgres.insert.1.request", "postgres.insert.1.reply", "postgres.commit.1.request"],
            "A's transaction is rolled back with its end, the record and the lock with it, but not the charge",
        )
    ),
}
"""None for fenced-read, idempotency-key and reserve-confirm: the processor is asked, or told, what was charged."""


@sweeps(HOLES)
def test_every_boundary_with_every_fault_is_as_declared(sweep: Sweep) -> None:
    complaints = sweep.complaints()
    assert not complaints, f"{sweep.subject}: {sweep.sentence()}\n\n" + "\n\n".join(complaints)
