"""A lock in PostgreSQL is a session's: what ends the session, shares it, or has it elsewhere, while A charges.

The session is ended by the server, by the network, or by a timeout; a connection pooler in transaction mode gives it to
another worker; or the other worker is connected to another PostgreSQL.
"""

from __future__ import annotations

from harness import Result, experiments

AT_CHARGE = ("charge-request", "charge-reply")
AT_REQUEST = ("charge-request",)

_ENDED = (
    "the lock ends with A's session while A charges, and A does not notice: B gets the lock at once, reads that "
    "nothing is paid, and charges"
)
_IDLE = (
    "the session that holds the lock is idle while A charges, so the server ends it: the next one gets the lock, reads "
    "that nothing is paid, and charges"
)
_IDLE_IN_TRANSACTION = (
    "the transaction is idle while A charges, so the server ends it, lock and all: B gets the lock, reads that nothing "
    "is paid, and charges, and A cannot record its charge any more"
)
_POOLED = (
    "the lock belongs to the pooler's server connection, which serves B next, and a session's own lock is no obstacle "
    "to that session: B is granted it too"
)
_ELSEWHERE = "an advisory lock and a record of payment are those of one instance: B's knows of neither"
_INTENT_ELSEWHERE = (
    "the intent is a row in A's PostgreSQL: B's has none, so B reserves its own and charges; to the processor they are "
    "two charges"
)

ADVISORY = ("pg-advisory", "pg-advisory-xact")
ENDED = {(subject, place): _ENDED for subject in ADVISORY for place in AT_CHARGE}
IDLE = {("pg-advisory", place): _IDLE for place in AT_CHARGE}
IDLE_IN_TRANSACTION = {("pg-advisory-xact", place): _IDLE_IN_TRANSACTION for place in AT_CHARGE}
POOLED = {("pg-advisory", place): _POOLED for place in AT_REQUEST}
ELSEWHERE = {
    **{(subject, place): _ELSEWHERE for subject in ADVISORY for place in AT_REQUEST},
    **{("reserve-confirm", place): _INTENT_ELSEWHERE for place in AT_REQUEST},
}
HOLES = {
    "postgres-terminated": ENDED,
    "postgres-reset": ENDED,
    "postgres-idle-session": IDLE,
    "postgres-idle-in-transaction": IDLE_IN_TRANSACTION,
    "postgres-pooler": POOLED,
    "postgres-second": ELSEWHERE,
}
"""fault -> its holes. Why not elsewhere, and where it does not apply.

reserve-confirm holds no session while it charges, so there is none to end or to let idle. What it does before and
    after are single statements, each a transaction, which a pooler may serve from anywhere.
pg-advisory-xact's session is in a transaction, where idle_session_timeout does not count; the pooler leaves a server
    connection to its transaction until that ends, so behind it the lock holds. pg-advisory has no transaction open.
reserve-confirm-naive and all others use no PostgreSQL.
"""


@experiments("postgres-terminated", places=AT_CHARGE, holes=ENDED, scenario="postgres-sessions")
def test_a_session_that_the_server_ends(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("postgres-reset", places=AT_CHARGE, holes=ENDED, scenario="postgres-sessions")
def test_a_session_whose_connection_is_reset(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("postgres-idle-session", places=AT_CHARGE, holes=IDLE, scenario="postgres-sessions")
def test_a_session_that_is_idle_for_too_long(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("postgres-idle-in-transaction", places=AT_CHARGE, holes=IDLE_IN_TRANSACTION, scenario="postgres-sessions")
def test_a_transaction_that_is_idle_for_too_long(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("postgres-pooler", places=AT_REQUEST, holes=POOLED, scenario="postgres-sessions")
def test_a_session_behind_a_transaction_pooler(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("postgres-second", places=AT_REQUEST, holes=ELSEWHERE, scenario="postgres-sessions")
def test_a_session_with_another_instance(experiment: Result) -> None:
    experiment.charged_exactly_once()
