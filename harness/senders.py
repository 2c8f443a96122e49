"""Who is behind what a server tells: the worker that sent a lock's value, the worker that began a Postgres session."""

from __future__ import annotations

from typing import Any

from harness.network.tap import Message
from harness.nodes import is_redis

_LONGEST_NAME = 512
"""In bytes; a longer argument is taken for no key's name."""
_CHARGE_LABEL = "post-v1-charges"


class Senders:
    """What the messages of an experiment's workers told of whoever sent them."""

    def __init__(self) -> None:
        self.named: set[bytes] = set()
        """What workers' commands to Redis named: keys, and much else."""
        self._values: dict[bytes, str] = {}
        self._sessions: dict[int, str] = {}
        self._last_asker = "A"

    def told(self, worker: str, message: Message, lock_key: str | None) -> dict[str, Any]:
        """What a message tells, as the history has it; what it tells of its sender is remembered.

        A request to charge has a token and a key, which may be None.
        """
        detail: dict[str, Any] = {"boundary": message.boundary}
        if message.side == "request":
            if is_redis(message.link) and "args" in message.info:
                self.named.update(arg for arg in message.info["args"] if len(arg) <= _LONGEST_NAME)
                self._remember_args(worker, message.info["args"], lock_key)
            elif message.label == _CHARGE_LABEL:
                headers = message.info["headers"]
                detail["token"] = headers.get("fencing-token")
                detail["key"] = headers.get("idempotency-key")
        elif "status" in message.info:
            detail["status"] = message.info["status"]
        elif "backend_pid" in message.info:
            self._sessions[message.info["backend_pid"]] = worker
        return detail

    def _remember_args(self, worker: str, args: list[bytes], lock_key: str | None) -> None:
        if lock_key is None or not any(lock_key.encode() == arg for arg in args):
            return
        self._last_asker = worker
        for arg in args:
            self._values[arg] = worker

    def who_set(self, key: str, value: str | None) -> str:
        """Who took the lock: the worker whose request carried its value, else the one that asked last."""
        if value is not None:
            for arg, worker in self._values.items():
                if len(arg) > 7 and arg.decode("utf-8", "backslashreplace") == value:
                    return worker
        return self._last_asker

    def whose_session(self, backend_pid: int) -> str | None:
        """Whose a Postgres session is, by the number that the server told the worker when it began."""
        return self._sessions.get(backend_pid)
