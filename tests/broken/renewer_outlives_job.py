"""redisson#3521, #5115: the job died of an exception and released nothing; the renewer lives on and keeps the lock."""

from __future__ import annotations

from harness.subject import ACQUIRE_TIMEOUT_LEASES, Job, give_up
from tests.broken.agent import Agent
from tests.broken.shop import bill, connect


def run(job: Job) -> None:
    agent = Agent(job, dies_with_job=False)
    if not agent.acquired(job.lease_s * ACQUIRE_TIMEOUT_LEASES):
        agent.release()
        give_up("no lock in time")
    bill(job, connect(job))
    agent.release()  # not in a finally
