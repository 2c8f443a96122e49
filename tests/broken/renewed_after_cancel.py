"""redisson#7272: an acquire was called off, and its cancel ran before the asynchronous "start renewing".

What then renews for ever is a lock that nobody holds.
"""

from __future__ import annotations

from harness.subject import Job, give_up
from tests.broken.agent import Agent
from tests.broken.shop import bill, connect

PATIENCE_LEASES = 0.4


def run(job: Job) -> None:
    agent = Agent(job, heeds_early_stop=False, dies_with_job=False)
    # a lock that somebody holds is waited for as long as usual; an answer that does not come is not
    if not agent.acquired(job.lease_s * (PATIENCE_LEASES if job.worker == "A" else 8)):
        agent.release()
        give_up("the lock was not granted in time; the acquire is called off")
    bill(job, connect(job))
    agent.release()
