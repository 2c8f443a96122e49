"""The charge takes longer than the lease: 2.5 times LOCK_TTL_MS, at each place where that can happen.

The last place is a slower night, 5 times LOCK_TTL_MS: longer than long-ttl's own lease, too.
"""

from __future__ import annotations

from harness import Result, experiments
from harness.faults.slow_charge import (
    AFTER_COMMIT,
    PLACES,
    REPLY_WIRE,
    REQUEST_WIRE,
    SLOWER_NIGHT,
)

_NAIVE = (
    "the lease runs out while A's charge is under way; B gets the lock, reads that nothing is paid, and charges too"
)

HOLES = {
    **{("naive-ttl", place): _NAIVE for place in PLACES},
    ("long-ttl", SLOWER_NIGHT): "the night is slower than four leases: the longer lease runs out as well",
    ("fencing", REQUEST_WIRE): (
        "both charges are equally late: A's, with token 1, commits before B's token 2 has reached the processor, and "
        "B's is newer. A token orders charges, it does not count them"
    ),
    ("fencing", AFTER_COMMIT): (
        "A's charge, token 1, is committed at once and only its answer is late; B's token 2 is newer, and Redis has no "
        "record of A's charge yet"
    ),
    ("fencing", REPLY_WIRE): (
        "A's charge, token 1, is committed at once and its answer is on its way; B's token 2 is newer, and Redis has "
        "no record of A's charge yet"
    ),
}
"""Why not elsewhere: with request-wire-of-a and before-commit (and so in the slower night) B's token 2 reaches the
processor before A's charge commits, and A's token 1 is refused then. A renewed lease does not run out, nor does a
session's lock in PostgreSQL. The two that reserve hold nothing over the charge but an intent, which has no lease: B
leaves it alone for 3 leases, and what reserve-confirm then takes over it has voided at the processor first, so that A's
charge is refused when it wants to commit, after 5 leases of the slower night."""


@experiments("slow-charge", places=PLACES, holes=HOLES)
def test_a_slow_charge_is_charged_exactly_once(experiment: Result) -> None:
    experiment.charged_exactly_once()
