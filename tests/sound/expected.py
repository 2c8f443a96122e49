"""The sound subjects: how each is given to pytest. All of scenarios/ has to come out clean for every one of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sound:
    """name: the subject's file. setup: its module has a setup(job) for --harness-setup. args: more that it needs."""

    name: str
    setup: bool = False
    args: tuple[str, ...] = ()

    @property
    def subject_args(self) -> tuple[str, ...]:
        """How the subject is given to pytest."""
        if self.name.endswith(".sh"):
            return ("--harness-worker", f"bash tests/sound/{self.name}")
        if self.name.endswith(".mjs"):
            return ("--harness-worker", f"node tests/sound/{self.name}")
        module = f"tests.sound.{self.name}"
        setup = ("--harness-setup", f"{module}:setup") if self.setup else ()
        return ("--harness-subject", f"{module}:run", *setup, *self.args)


BANK = (
    Sound("redis_py_lock_with_key"),
    Sound("asyncio_fenced_read"),
    Sound("postgres_unique", setup=True),
    Sound("postgres_skip_locked", setup=True),
    Sound("skips_when_taken"),
    Sound("no_lock_but_a_key"),
    Sound("without_keep_alive"),
    Sound("pool_and_threads"),
    Sound("worker.mjs"),
    Sound("worker.sh"),
    Sound("redlock_with_key", args=("--harness-redis-nodes", "3")),
)
