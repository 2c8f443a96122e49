"""redlock-py#27, redlock-rb#60: one node of three that is down is an exception, although the other two are a quorum.

Here it is the renewal's: its thread takes the first error for the loss of the lock and renews no more. The lock runs
out on the two nodes that are left, while the charge is under way.
"""

from __future__ import annotations

from typing import Any

import redis

from harness.subject import Job
from tests.broken.quorum import Quorum, charge_once


class EveryNodeCounts(Quorum):
    def eval(self, script: str, keys: int, *args: Any) -> int:
        answers = self.ask(lambda node: node.eval(script, keys, *args))
        if any(isinstance(answer, redis.RedisError) for answer in answers):
            return 0  # the bug: one node that cannot be asked is a lock that is lost
        return int(answers.count(1) >= self.majority)


def run(job: Job) -> None:
    charge_once(job, EveryNodeCounts(job))
