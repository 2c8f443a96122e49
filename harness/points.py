"""Which of A's messages are the paid-read, the charge, the record and the release: told from a clean run's messages.

Nothing is asked of the subject. A billing job is asked for its order alone: it reads, charges, records, lets go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from harness.network.framing import protocol_of
from harness.network.tap import Message

CHARGE = "post-v1-charges"

_CONNECTION = {
    "redis": frozenset("hello auth ping select reset quit readonly".split()),
    "postgres": frozenset("startup ssl-request gss-request password cancel terminate begin start set show".split()),
}
"""Labels of what a client says to have a connection, or a transaction, at all."""
_REDIS_READS = frozenset(
    "get mget getex getrange strlen exists hget hmget hgetall hexists lrange lindex llen smembers sismember scard "
    "zscore zrange zcard type".split()
)
_UNLOCK = re.compile(r"advisory_unlock", re.IGNORECASE)
_ENDS_TRANSACTION = frozenset(("commit", "end", "rollback"))


def points(sent: Sequence[Message], lock: str | None, *, early: bool = False) -> dict[str, str]:
    """Point -> message (link.label.n). sent: A's requests, in order. lock: its key; early: let go before the charge.

    The read is the last question before the charge, the record the first message after it that is neither about the
    lock nor about a connection. The release is the last request that names the lock (after the charge, or before it
    where the lock is let go early); of a lock in PostgreSQL it is the unlock, else the end of the transaction, else
    the end of the session. A point that there is none of is left out.
    """
    charges = [i for i, message in enumerate(sent) if message.label == CHARGE]
    if not charges:
        return {}
    before, after = sent[: charges[0]], sent[charges[0] + 1 :]
    found = {"charge": _stem(sent[charges[0]])}
    if (release := _release(before if early else after, lock)) is not None:
        found["release"] = _stem(release)
    jobs_own = [m for m in before if not _of_connection(m) and not _of_lock(m, lock)]
    if (read := _last(jobs_own, _asks) or _last(jobs_own, lambda m: m.link != "processor")) is not None:
        found["paid-read"] = _stem(read)
    records = [m for m in after if not _of_connection(m) and not _of_lock(m, lock) and _stem(m) != found.get("release")]
    if records:
        found["record"] = _stem(records[0])
    return found


def _release(among: Sequence[Message], lock: str | None) -> Message | None:
    if lock is not None:
        return _last(among, lambda m: _of_lock(m, lock))
    in_postgres = [m for m in among if m.link == "postgres"]
    unlock = _last(in_postgres, lambda m: bool(_UNLOCK.search(m.info.get("sql", ""))))
    return unlock or _last(in_postgres, lambda m: m.label in _ENDS_TRANSACTION) or _last(in_postgres, lambda _: True)


def _asks(message: Message) -> bool:
    """Whether a message is a question that changes nothing."""
    if message.link == "processor":
        return message.info.get("method") == "GET"
    return message.label == "select" if message.link == "postgres" else message.label in _REDIS_READS


def _of_connection(message: Message) -> bool:
    return message.label in _CONNECTION.get(protocol_of(message.link), ()) or message.label.startswith("client-")


def _of_lock(message: Message, lock: str | None) -> bool:
    if message.link == "postgres":
        return "advisory" in message.info.get("sql", "").lower()
    return lock is not None and lock.encode() in message.info.get("args", ())


def _last(among: Sequence[Message], that: Callable[[Message], bool]) -> Message | None:
    return next((message for message in reversed(among) if that(message)), None)


def _stem(message: Message) -> str:
    return f"{message.link}.{message.label}.{message.n}"
