"""counter-restart: redis-restart for a customer with earlier invoices.

The counter begins at 1 again, below what the processor has seen, and every token it gives is refused.
"""

from __future__ import annotations

from harness.faults import register
from harness.faults._counter import LosesCounter
from harness.faults.redis_restart import RedisRestart


@register
class CounterRestart(LosesCounter, RedisRestart):
    """Eight clean invoices come before, and the customer's next one after."""

    name = "counter-restart"
    title = "Redis without persistence is started again, and with the lock the fencing counter is gone"
