"""counter-eviction: redis-eviction for a customer with earlier invoices.

The counter begins at 1 again, below what the processor has seen, and every token it gives is refused.
"""

from __future__ import annotations

from harness.faults import register
from harness.faults._counter import LosesCounter
from harness.faults.redis_eviction import RedisEviction


@register
class CounterEviction(LosesCounter, RedisEviction):
    """Eight clean invoices come before, and the customer's next one after."""

    name = "counter-eviction"
    title = "Redis evicts the lock and the fencing counter (allkeys-lru)"
