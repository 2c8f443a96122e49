"""node-redlock#16, infrahub#9450: the primary dies before the key is replicated, and the new primary grants it again.

A fencing token does not help: its counter lags behind on the replica just as the lock does.
"""

from __future__ import annotations

from harness.subject import Job
from tests.broken.shop import fenced, release_if_owner


def run(job: Job) -> None:
    fenced(job, release=release_if_owner)
