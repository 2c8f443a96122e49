"""How faults find A's request for its lock: nobody tells them, the first message that names the lock's key is it."""

from __future__ import annotations

from harness.bench import Bench
from harness.network.tap import Handler, Message
from harness.nodes import is_redis
from harness.profile import Profile


def no_acquire(profile: Profile) -> str | None:
    """Why a subject has no request for a lock that could be seen; None when it has one."""
    if profile.lock_kind == "redis":
        return None
    return "it takes no lock in Redis" if profile.lock_kind is None else f"its lock is {profile.lock}, not a Redis key"


def at_acquire(bench: Bench, side: str, handler: Handler) -> None:
    """Calls handler when A's request for the lock, or the reply to it, crosses the tap. To be called before A starts.

    A reply that is an error (NOSCRIPT: the client sends the script itself next) does not count; the next one does.
    """
    assert bench.lock is not None
    key = bench.lock.key.encode()
    boundaries: list[str] = []

    def listen(worker: str, message: Message) -> None:
        if worker != "A" or not is_redis(message.link):
            return
        if message.side == "request" and not boundaries and key in message.info.get("args", ()):
            boundaries.append(f"{message.link}.{message.label}.{message.n}.{side}")
            bench.at_boundary[boundaries[0]] = handler
        elif message.boundary in boundaries and side == "reply" and message.raw.startswith(b"-"):
            del bench.at_boundary[boundaries.pop()]

    bench.on_message.append(listen)
