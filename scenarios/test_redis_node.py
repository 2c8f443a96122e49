"""One of several Redis nodes is away while A asks for its lock, or charges: gone, or there and silent.

For subjects that ask for several (--harness-redis-nodes 3, REDIS_URLS); the built-in ones have one Redis, and none of
this concerns them. That a node comes back empty at once is redis-restart in test_redis_loss.py, of the first node.
"""

from __future__ import annotations

from harness import Result, experiments
from harness.faults._redis_node import PLACES


@experiments("redis-node-down", places=PLACES, scenario="redis-node")
def test_a_lock_on_several_nodes_outlives_one_that_is_down(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("redis-node-silent", places=PLACES, scenario="redis-node")
def test_a_lock_on_several_nodes_outlives_one_that_is_silent(experiment: Result) -> None:
    experiment.charged_exactly_once()
