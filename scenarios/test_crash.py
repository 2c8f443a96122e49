"""Worker A is killed (SIGKILL) at each step of its job. A request that it had just sent is never delivered.

How long its customer then stayed locked for the next worker is measured too (recovery_s): the price of a longer lease.
"""

from __future__ import annotations

from harness import Hole, Result, experiments
from harness.scenario import Holes

PLACES = (
    "paid-read-request",
    "paid-read-reply",
    "charge-request",
    "charge-reply",
    "record-request",
    "record-reply",
    "release-request",
)

_BETWEEN = ("charge-reply", "record-request")
"""The charge is made, the record of it is not."""

_UNRECORDED = (
    "A dies between the charge and the record of it: once the lease has run out B reads that nothing is paid, and "
    "charges"
)
_NEWER = (
    "A dies between the charge and the record of it: once the lease has run out B draws a higher token, and its charge "
    "is accepted too"
)
_AT_ONCE = (
    "A dies between the charge and the record of it. The lock of a session that ended is free at once, so B reads that "
    "nothing is paid and charges at once"
)
_ROLLED_BACK = (
    "until the commit has arrived the record is rolled back with A's session, and the lock is free at once: B reads "
    "that nothing is paid and charges at once"
)
_NEVER = Hole("the intent is written and nobody is left to charge: all who come later leave it alone", "no-charge")

HOLES: Holes = {
    **{(subject, place): _UNRECORDED for subject in ("naive-ttl", "long-ttl", "watchdog") for place in _BETWEEN},
    **{(subject, place): _NEWER for subject in ("fencing", "watchdog-fencing") for place in _BETWEEN},
    **{("pg-advisory", place): _AT_ONCE for place in _BETWEEN},
    **{("pg-advisory-xact", place): _ROLLED_BACK for place in (*_BETWEEN, "record-reply", "release-request")},
    **{("reserve-confirm-naive", place): _NEVER for place in ("charge-request", "release-request")},
}
"""Why not elsewhere.

paid-read-request, paid-read-reply, charge-request: nothing is charged when A dies, so B's is the only charge.
    (reserve-confirm-naive lets its lock go before it charges: release-request belongs here, too.)
charge-reply, record-request: fenced-read's B asks the processor what is paid; a key made from the invoice gives B the
    answer to A's charge; reserve-confirm's B waits 3 leases and then asks for the charge of A's intent;
    reserve-confirm-naive's B leaves the intent alone for ever, which for once is right.
record-reply, release-request: it is on record.
"""


@experiments("crash", places=PLACES, holes=HOLES)
def test_after_a_crash_the_invoice_is_charged_exactly_once(experiment: Result) -> None:
    experiment.charged_exactly_once()
