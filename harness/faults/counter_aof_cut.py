"""counter-aof-cut: redis-aof-cut for a customer with earlier invoices.

The counter is set back to where it stood before A, and the token that A has is given again.
"""

from __future__ import annotations

from harness.faults import register
from harness.faults._counter import LosesCounter
from harness.faults.redis_aof_cut import RedisAofCut


@register
class CounterAofCut(LosesCounter, RedisAofCut):
    """Eight clean invoices come before, and the customer's next one after."""

    name = "counter-aof-cut"
    title = "Redis loses power: lock and fencing counter are back where they were at the last fsync"
