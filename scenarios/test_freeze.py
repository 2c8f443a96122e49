"""Worker A is stopped (SIGSTOP) at each step of its job, and wakes up, believing, when B is through.

At a request it is stopped with the message held: the server gets it when A wakes. At a reply the server has done its
part, and A has not seen the answer.
"""

from __future__ import annotations

from harness import Result, experiments

PLACES = (
    "paid-read-request",
    "paid-read-reply",
    "charge-request",
    "charge-reply",
    "record-request",
    "record-reply",
    "release-request",
)

_PLAIN = ("naive-ttl", "long-ttl")
_STALE = "A acts on an answer, not paid, that went stale while its lease ran out, and it checks nothing in between"
_LATE = "A's charge arrives after B's, and nothing on it says that A's lease had run out"
_UNRECORDED = (
    "A's charge is committed and not on record when its lease runs out: B reads that nothing is paid and charges"
)
_NO_CALLING_BACK = (
    "the watchdog is frozen with its process, and the deadline was checked before the charge was sent: what is on its "
    "way cannot be called back"
)
_DOG_FROZEN = (
    "the watchdog is frozen with its process, so the lease runs out between the charge and the record of it: B reads "
    "that nothing is paid and charges"
)
_NEWER = (
    "A's charge is committed and not on record when its lease runs out. B's token is higher, so its charge is accepted "
    "too: a token orders charges, it does not count them"
)

HOLES = {
    **{(subject, "paid-read-reply"): _STALE for subject in _PLAIN},
    **{(subject, "charge-request"): _LATE for subject in _PLAIN},
    **{(subject, place): _UNRECORDED for subject in _PLAIN for place in ("charge-reply", "record-request")},
    ("watchdog", "charge-request"): _NO_CALLING_BACK,
    **{("watchdog", place): _DOG_FROZEN for place in ("charge-reply", "record-request")},
    **{
        (subject, place): _NEWER
        for subject in ("fencing", "watchdog-fencing")
        for place in ("charge-reply", "record-request")
    },
    ("reserve-confirm-naive", "paid-read-reply"): (
        "the intent is read, then written, and the lock over both has run out: A's answer, no intent, is stale, so it "
        "writes over B's and charges under its own"
    ),
}
"""Why not elsewhere.

paid-read-request: the question is held, so it is asked after B is through, and the answer is: paid.
paid-read-reply: the watchdogs look at their deadline after the answer; A's token, with fencing, is lower than B's by
    then; reserve-confirm's insert finds B's row.
charge-request: B's token has reached the processor before A's charge does; fenced-read's did so by asking. With
    reserve-confirm B has voided A's intent after 3 leases; reserve-confirm-naive's B leaves A's intent alone.
charge-reply, record-request: fenced-read's B asks the processor; a key made from the invoice gives B the answer to A's
    charge; reserve-confirm's B asks for the charge of A's intent.
record-reply, release-request: it is on record.
pg-advisory, pg-advisory-xact: a session stands as long as its process does, frozen or not: B never gets the lock.
"""


@experiments("freeze", places=PLACES, holes=HOLES)
def test_a_worker_that_was_frozen_does_not_charge_again(experiment: Result) -> None:
    experiment.charged_exactly_once()
