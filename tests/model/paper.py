"""The holes worked out on paper, from the job's steps and the servers' rules: one sentence for each reason.

This is a list of expectations, not a result: test_model.py compares it with what the model derives, both ways.
Places are those of tables.py; a renewal is renew.2-request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .queue import DOUBLE_CHARGE, NO_CHARGE
from .tables import LOSSES, Cell


@dataclass(frozen=True, slots=True)
class Row:
    """One reason and where it holds: every combination of the words in variants, faults and places."""

    variants: str
    faults: str
    places: str
    why: str
    verdict: str = DOUBLE_CHARGE

    def cells(self) -> Iterator[Cell]:
        for variant in self.variants.split():
            for fault in self.faults.split():
                for place in self.places.split():
                    yield variant, fault, place


PLAIN = "naive-ttl long-ttl"
UNFENCED = f"{PLAIN} watchdog"
FENCED = "fencing watchdog-fencing"
DRAWS_TOKENS = f"{FENCED} fenced-read"
LOCKED_IN_REDIS = f"{UNFENCED} {DRAWS_TOKENS} idempotency-key"
ADVISORY = "pg-advisory pg-advisory-xact"
BOTH = "charge-request charge-reply"
RENEWALS = " ".join(f"renew.{n}-{side}" for n in (1, 2, 3) for side in ("request", "reply"))
"""Three of them, in the 1.2 leases for which the charge is held where renewals are looked for."""
PARTITIONS = "partition-late partition-refused partition-reset"
EMPTIED = "redis-restart redis-flush redis-eviction"
OF_BEFORE = "redis-aof-cut redis-failover"

ROWS = (
    # a slow charge
    Row(
        "naive-ttl", "slow-charge", "request-wire",
        "Both charges take 2.5 leases to arrive; B got the lock after one, and nothing on either says that they "
        "are the same.",
    ),
    Row(
        "naive-ttl", "slow-charge", "request-wire-of-a",
        "B overtakes A and charges after one lease; A's charge arrives later with nothing on it by which it could "
        "be refused.",
    ),
    Row(
        "naive-ttl", "slow-charge", "before-commit slower-night",
        "The lease runs out while A's charge waits to commit: B reads that nothing is paid, and both commit.",
    ),
    Row(
        "naive-ttl fencing", "slow-charge", "after-commit reply-wire",
        "A's charge is committed but not answered, so not recorded: B gets the lock, reads that nothing is paid, "
        "and charges (a higher token is accepted).",
    ),
    Row(
        "long-ttl", "slow-charge", "slower-night",
        "Five leases of charging outlast a lease of four: B gets the lock at four, before A's charge commits at "
        "five.",
    ),
    Row(
        "fencing", "slow-charge", "request-wire",
        "Both charges are delayed alike, so token 1 arrives before token 2 and both are accepted: a token orders "
        "charges, it does not count them.",
    ),
    # frozen, or a message held
    Row(
        PLAIN, "freeze hold", "paid-read-reply",
        "A acts on an answer, not paid, that went stale while its lease ran out; it checks nothing before it "
        "charges.",
    ),
    Row(
        PLAIN, "freeze hold", "charge-request",
        "A's charge is delivered after B's, and nothing on it says that A's lease had run out.",
    ),
    Row(
        "watchdog", "freeze", "charge-request",
        "The watchdog is frozen with its process, and the deadline was checked before the charge was sent: a "
        "request on its way cannot be called back.",
    ),
    Row(
        PLAIN, "freeze hold", "charge-reply record-request",
        "A's charge is committed and not recorded when its lease runs out: B reads that nothing is paid and "
        "charges.",
    ),
    Row(
        "watchdog", "freeze", "charge-reply record-request",
        "The watchdog is frozen with its process, so the lease runs out between the charge and the record of it: "
        "B reads that nothing is paid and charges.",
    ),
    Row(
        "fencing", "freeze hold", "charge-reply record-request",
        "A's charge is committed and not recorded when its lease runs out; B's token is higher, so its charge is "
        "accepted too.",
    ),
    Row(
        "watchdog-fencing", "freeze", "charge-reply record-request",
        "A's charge is committed and not recorded when its lease runs out, the watchdog being frozen too; B's "
        "token is higher, so its charge is accepted.",
    ),
    Row(
        "reserve-confirm-naive", "freeze hold", "paid-read-reply",
        "The intent is read, then written: A's answer, no intent, is stale, so it writes over B's and charges "
        "under its own.",
    ),
    Row(
        "reserve-confirm-naive", "freeze hold", "reserve-request",
        "A's write of the intent arrives after B's and overwrites it blindly; A then charges under its own.",
    ),
    Row(
        "watchdog", "freeze hold", RENEWALS,
        "The renewal, or the thread that waits for its answer, is stuck while the charge, already sent, is held: the "
        "lease runs out, nothing is recorded, B charges.",
    ),
    # an acquire that goes wrong, a worker that is kept busy, a third one that waits
    Row(
        PLAIN, "rough-acquire", "request-late reply-late",
        "A has a lock that nobody renews, or what is left of one, and its charge is slow: the lease runs out, B reads "
        "that nothing is paid, and both charge.",
    ),
    Row(
        PLAIN, "busy", "charge-request",
        "Busy or not, nothing renews the lease, which runs out while the charge is held.",
    ),
    Row(
        PLAIN, "third-worker", "acquire-reply paid-read-reply charge-request",
        "A wakes up without its lease and looks at nothing; the next owner has charged and not recorded it.",
    ),
    Row(
        "watchdog", "third-worker", "charge-request",
        "The deadline was checked before the charge was sent, and A was frozen after that: the charge goes through.",
    ),
    Row(
        "reserve-confirm-naive", "third-worker", "paid-read-reply",
        "A's answer, no intent, is stale: it writes over the next owner's intent, and charges under its own.",
    ),
    # killed, or the connection reset
    Row(
        UNFENCED, "crash lose", "charge-reply record-request",
        "A ends between the charge and the record of it: once the lock is free B reads that nothing is paid and "
        "charges.",
    ),
    Row(
        FENCED, "crash lose", "charge-reply record-request",
        "A ends between the charge and the record of it: B's token is higher, so its charge is accepted too.",
    ),
    Row(
        "pg-advisory", "crash lose", "charge-reply record-request",
        "The lock of an ended session is free at once and the charge is not on record: B charges at once.",
    ),
    Row(
        "pg-advisory-xact", "crash lose", "charge-reply record-request record-reply release-request",
        "Until the commit arrives the paid record is rolled back with the session, and the lock is free at once: "
        "B charges at once.",
    ),
    Row(
        "reserve-confirm-naive", "crash lose", "reserve-reply release-request release-reply charge-request",
        "The intent is written and nobody ever charges: all who come later leave it alone, for ever.", NO_CHARGE,
    ),
    # A cut off from Redis
    Row(
        UNFENCED, PARTITIONS, BOTH,
        "The charge goes through, but neither a renewal nor the record of it reaches Redis: the lease runs out "
        "and B charges.",
    ),
    Row(
        FENCED, PARTITIONS, BOTH,
        "The charge goes through, the record of it does not reach Redis: B's token is higher, so its charge is "
        "accepted too.",
    ),
    # Redis loses the lock
    Row(
        PLAIN, "redis-aof", BOTH,
        "The lock survives the restart and then runs out like any other while the charge is held.",
    ),
    Row(
        "fencing", "redis-aof", "charge-reply",
        "The lock survives the restart and then runs out like any other; B's token is higher, so its charge is "
        "accepted too.",
    ),
    Row(
        UNFENCED, f"{EMPTIED} {OF_BEFORE} redis-early-expiry", BOTH,
        "The lock is gone while A charges: B gets it at once and reads that nothing is paid, and A's charge "
        "cannot be called back.",
    ),
    Row(
        FENCED, "redis-early-expiry", "charge-reply",
        "The lock is gone after A's charge is committed and before it is recorded; B's token is higher, so its "
        "charge is accepted.",
    ),
    Row(
        FENCED, f"{EMPTIED} {OF_BEFORE}", BOTH,
        "The counter is lost with the lock, so B draws A's token again: equal to the mark, both charges are "
        "accepted.",
    ),
    Row(
        "fenced-read", f"{EMPTIED} {OF_BEFORE}", "charge-request",
        "B draws A's token again: its read finds no charge yet and does not make A's token stale, so both charges "
        "are accepted.",
    ),
    Row(
        "reserve-confirm-naive", f"{EMPTIED} {OF_BEFORE}", BOTH,
        "The intent is lost with everything else in Redis: B reserves anew and charges.",
    ),
    # and the fencing counter, which stood at 8
    Row(
        FENCED, "counter-aof-cut counter-failover", BOTH,
        "The counter is back at 8, so B draws 9 as A did: equal to the mark, both charges are accepted.",
    ),
    Row(
        "fenced-read", "counter-aof-cut counter-failover", "charge-request",
        "The counter is back at 8, so B draws 9 as A did: its read finds no charge yet and does not make A's 9 "
        "stale.",
    ),
    # Postgres
    Row(
        ADVISORY, "postgres-terminated postgres-reset", BOTH,
        "The lock ends with the session while A charges: B gets it at once and reads that nothing is paid.",
    ),
    Row(
        "pg-advisory", "postgres-idle-session", BOTH,
        "The session that holds the lock idles while A charges, and the server ends it: B gets the lock and "
        "charges.",
    ),
    Row(
        "pg-advisory-xact", "postgres-idle-in-transaction", BOTH,
        "The transaction idles while A charges, and the server ends it, lock and all: B charges, and A's record "
        "is rolled back.",
    ),
    Row(
        "pg-advisory", "postgres-pooler", "charge-request",
        "The lock belongs to the pooler's backend, which serves B next, and it is re-entrant there: B is granted "
        "it too.",
    ),
    Row(
        ADVISORY, "postgres-second", "charge-request",
        "An advisory lock and a paid record are those of one instance: B's knows neither.",
    ),
    Row(
        "reserve-confirm", "postgres-second", "charge-request",
        "The intent is a row in A's Postgres: B's has none, so B reserves its own and charges.",
    ),
)  # fmt: skip

_LOSING = " ".join(f"redis-{kind}" for kind in LOSSES)
_COUNTERS = " ".join(f"counter-{kind}" for kind in LOSSES)
_ENDINGS = "postgres-terminated postgres-reset postgres-idle-session postgres-idle-in-transaction"
NOT_CONCERNED = (
    Row(
        "reserve-confirm", PARTITIONS, BOTH,
        "It has let its Redis lock go before it charges and needs that link no more.",
    ),
    Row(
        "reserve-confirm", _LOSING, BOTH,
        "It holds no lock while it charges: there is none to lose.",
    ),
    Row(
        "reserve-confirm-naive", "redis-early-expiry", BOTH,
        "It holds no lock while it charges, and its intent does not expire.",
    ),
    Row(
        ADVISORY, f"{PARTITIONS} {_LOSING}", BOTH,
        "It uses no Redis.",
    ),
    Row(
        ADVISORY, "rough-acquire", "request-lost reply-lost request-late reply-late",
        "Its lock is not in Redis.",
    ),
    Row(
        ADVISORY, "third-worker", "acquire-reply",
        "Its lock is not in Redis.",
    ),
    Row(
        f"{UNFENCED} idempotency-key reserve-confirm reserve-confirm-naive {ADVISORY}", _COUNTERS, BOTH,
        "It draws no token.",
    ),
    Row(
        DRAWS_TOKENS, "counter-aof counter-early-expiry", BOTH,
        "The counter survives this.",
    ),
    Row(
        f"{LOCKED_IN_REDIS} reserve-confirm-naive", _ENDINGS, BOTH,
        "It uses no Postgres.",
    ),
    Row(
        f"{LOCKED_IN_REDIS} reserve-confirm-naive", "postgres-pooler postgres-second", "charge-request",
        "It uses no Postgres.",
    ),
    Row(
        "pg-advisory-xact", "postgres-idle-session", BOTH,
        "Its session is in a transaction, where idle_session_timeout does not count.",
    ),
    Row(
        "pg-advisory reserve-confirm", "postgres-idle-in-transaction", BOTH,
        "It has no transaction open while it charges.",
    ),
)  # fmt: skip
