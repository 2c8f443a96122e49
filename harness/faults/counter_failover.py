"""counter-failover: redis-failover for a customer with earlier invoices.

The counter is set back to where it stood before A, and the token that A has is given again.
"""

from __future__ import annotations

from harness.faults import register
from harness.faults._counter import LosesCounter
from harness.faults.redis_failover import RedisFailover


@register
class CounterFailover(LosesCounter, RedisFailover):
    """Eight clean invoices come before, and the customer's next one after."""

    name = "counter-failover"
    title = "Redis fails over to a replica that neither the lock nor A's token has reached"
