"""Which scenario must catch which broken subject, where, and with which verdict. README.md beside this says why.

Read by tests/test_banks.py and tests/soak.py, and by anyone who wants to run one:

    pytest scenarios/ --harness-subject tests.broken.unconditional_del:run -k third_worker
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.network.resp import redis_label
from harness.variants import watchdog

DOUBLE, NONE = "double-charge", "no-charge"
BASELINE = "baseline"
"""In place of a scenario: caught before any fault is tried."""
SWEEP = "every-boundary"

_LOSSES = {
    "redis-failover": "promoted_replica",
    "redis-eviction": "that_is_evicted",
    "redis-restart": "lost_in_a_restart",
    "redis-early-expiry": "expires_early",
    "redis-node-down": "one_that_is_down",
}
"""Fault of a scenario that has several -> a word that only its test's name has."""


@dataclass(frozen=True, slots=True)
class Broken:
    """name: the subject's file. report: as in its docstring. scenario, fault, place, verdict: what has to come out.

    twin: the built-in variant that is sound at this very place; the subject differs from it by its bug. None where
    there is none to compare with. counterpart: the subject without the bug, where no built-in variant is that; it runs
    on its own. args: more that pytest is given.
    """

    name: str
    report: str
    scenario: str
    place: str
    twin: str | None
    verdict: str = DOUBLE
    fault: str | None = None
    args: tuple[str, ...] = ()
    counterpart: str | None = None

    @property
    def subject_args(self) -> tuple[str, ...]:
        """How the subject is given to pytest."""
        if self.name.endswith(".sh"):
            return ("--harness-worker", f"bash tests/broken/{self.name}")
        if self.name.endswith(".mjs"):
            return ("--harness-worker", f"node tests/broken/{self.name}")
        if self.name.endswith(".py"):
            return ("--harness-worker", f"{sys.executable} tests/broken/{self.name}")
        return ("--harness-subject", f"tests.broken.{self.name}:run")

    @property
    def subject(self) -> str:
        """The name that the harness gives it."""
        words = self.subject_args[1].split()
        return re.sub(r"[^a-z0-9]+", "-", "-".join(Path(word).name for word in words).lower())

    @property
    def keyword(self) -> str:
        """pytest's -k for the scenario, and the place and fault where the test is one of them."""
        test = self.scenario.replace("-", "_")
        if self.scenario == SWEEP:
            return test
        if self.scenario == BASELINE:
            return "slow_charge and before-commit"
        return " and ".join([test, *([_LOSSES[self.fault]] if self.fault else []), self.place])

    @property
    def runs_beside_twin(self) -> bool:
        """Whether the twin's experiment is in the same run: a sweep's boundaries have other names for each subject."""
        return self.twin is not None and self.scenario != SWEEP

    @property
    def arguments(self) -> tuple[str, ...]:
        """What a user would type after `pytest scenarios/`; the twin runs beside it, as the control does."""
        twin = ("--harness-variant", self.twin or "") if self.runs_beside_twin else ()
        return (*self.subject_args, *twin, "-k", self.keyword, *self.args)

    @property
    def counterpart_arguments(self) -> tuple[str, ...]:
        """The same for the subject without the bug."""
        return ("--harness-subject", self.counterpart or "", "-k", self.keyword, *self.args)

    @property
    def replay(self) -> tuple[str, ...]:
        """The same for the one experiment of a sweep that must catch it, without the hundred others."""
        return (*self.subject_args, *self.args, "--harness-replay", f"{self.subject}:{self.fault}@{self.place}")

    @property
    def caught_by(self) -> tuple[str, str, str]:
        """(scenario, fault, place) as results.json has them."""
        return self.scenario, "none" if self.scenario == BASELINE else self.fault or self.scenario, self.place


SHORT = ("--harness-ttl", "500")
"""An invoice that is never charged is waited for some 25 leases."""

NODES = ("--harness-redis-nodes", "3")
QUORUM = "tests.broken.quorum:run"

EXTEND = f"redis.{redis_label([b'EVAL', watchdog.EXTEND.encode()])}.1"
CHARGE = "processor.post-v1-charges.1"

BANK = (
    Broken("renewals_skipped", "redisson#5698, #5697", "slow-charge", "before-commit", "watchdog"),
    Broken("watchdog_without_deadline", "redisson#2665", "freeze", "paid-read-reply", "watchdog"),
    Broken("renewed_after_cancel", "redisson#7272", "rough-acquire", "reply-late", "watchdog", NONE, args=SHORT),
    Broken("renewer_outlives_job", "redisson#3521, #5115", SWEEP, f"{CHARGE}.request", "watchdog", NONE, "lose",
           SHORT),
    Broken("blocked_event_loop.py", "bull#308, #1416; bullmq#3056", "slow-charge", "before-commit", "watchdog"),
    Broken("retried_with_block", "redis-py#3532", "slow-charge", "after-commit", None),
    Broken("unconditional_del", "sidekiq-unique-jobs#94, celery-once, celery-singleton",
           "third-worker", "charge-request", "watchdog-fencing"),
    Broken("seconds_for_milliseconds", "redis-objects#234", "third-worker", "charge-request", "watchdog-fencing"),
    Broken("bare_pexpire", "redbeat#127", "third-worker", "paid-read-reply", "watchdog"),
    Broken("swallowed_acquire_error", "redbeat#208", "rough-acquire", "request-lost", "watchdog"),
    Broken("tight_lease", "redbeat#218", "busy", "charge-request", "watchdog"),
    Broken("body_without_lock", "redis-py#621; redlock-ng, redlock-rb, django-pglock",
           "slow-charge", "before-commit", "watchdog"),
    Broken("setnx_then_expire.sh", "redis-py#818, laravel/horizon#1738",
           SWEEP, "redis.pexpire.1.request", "naive-ttl", NONE, "crash", SHORT),
    Broken("extend_from_reply", "redsync#71, #149", SWEEP, f"{EXTEND}.reply", "watchdog", DOUBLE, "hold"),
    Broken("replica_promoted", "node-redlock#16, infrahub#9450", "redis-loss", "charge-request", "idempotency-key",
           fault="redis-failover"),
    Broken("evicted_lock", "RedLock.net#101, spring-integration#11044",
           "redis-loss", "charge-request", "idempotency-key", fault="redis-eviction"),
    Broken("counter_restarts", "spotahome/redis-operator#77", "redis-loss", "charge-request", "idempotency-key",
           fault="redis-restart"),
    Broken("clock_jump", "valkey#2651", "redis-loss", "charge-request", "watchdog-fencing", fault="redis-early-expiry"),
    Broken("grant_after_lease", "etcd#11456", "third-worker", "acquire-reply", "watchdog"),
    Broken("now_before_write", "ShedLock#132, #1596", "rough-acquire", "request-late", "watchdog"),
    Broken("suspended_clock", "nextly#777", "freeze", "paid-read-reply", "watchdog"),
    Broken("no_lock", "celery#5935, #3270", BASELINE, "none", None),
    Broken("lock_without_ttl", "celery-singleton#40, celery-once#147", "crash", "charge-request", "naive-ttl", NONE,
           args=SHORT),
    Broken("lock_on_pooled_session", "pgbouncer#102, authentik#23876", "slow-charge", "before-commit", "pg-advisory"),
    Broken("released_by_fork", "filelock#634, sherlock 0.4.1", "slow-charge", "before-commit", "watchdog"),
    Broken("post_retried_on_timeout", "mollie-api-python#325", "slow-charge", "reply-wire", "watchdog"),
    Broken("slow_success_retried", "akash-network/console#3449", "slow-charge", "reply-wire", "watchdog"),
    Broken("key_per_delivery", "woocommerce-gateway-stripe#489, #3725", "crash", "charge-reply", "idempotency-key"),
    Broken("key_per_attempt", "square-mcp-server#31, pympp#155", "lost-reply", "reset", None),
    Broken("resent_after_reset.mjs", "httpclient#142, axios-retry#66",
           SWEEP, f"{CHARGE}.reply", "idempotency-key", DOUBLE, "lose"),
    Broken("one_node_is_all", "redlock-py#27, redlock-rb#60", "redis-node", "charge-request", None,
           fault="redis-node-down", args=NODES, counterpart=QUORUM),
    Broken("stops_at_majority", "redis.io: Redlock, crash recovery", "redis-loss", "charge-request", None,
           fault="redis-restart", args=NODES, counterpart=QUORUM),
)  # fmt: skip


def table() -> str:
    """The rows of README.md's table."""
    rows = []
    for broken in BANK:
        scenario, fault, place = broken.caught_by
        caught = "the baseline, or the slow charge" if scenario == BASELINE else f"{scenario}: {fault}@{place}"
        file = broken.name if "." in broken.name else f"{broken.name}.py"
        sound = broken.twin or broken.counterpart or "-"
        rows.append(f"| {file} | {broken.report} | {caught} | {broken.verdict} | {sound} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
