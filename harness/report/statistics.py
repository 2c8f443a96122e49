"""The exact bound on how often something may still happen that was seen k times in n runs."""

from __future__ import annotations

import math


def clopper_pearson_upper(k: int, n: int, confidence: float = 0.95) -> float:
    """The one-sided upper Clopper-Pearson bound on a rate after k events in n independent runs.

    It is the largest p at which k or fewer events in n runs still have probability 1 - confidence (Clopper and Pearson
    1934). For k = 0 that is 1 - (1 - confidence)**(1/n), close to the "rule of three", 3/n at 95 %.
    Raises ValueError unless 0 <= k <= n, n >= 1 and 0 < confidence < 1.
    """
    if n < 1 or not 0 <= k <= n:
        raise ValueError(f"{k} events in {n} runs: runs must be at least 1 and events between 0 and runs")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence {confidence} is not between 0 and 1")
    alpha = 1.0 - confidence
    if k == n:
        return 1.0
    if k == 0:
        return -math.expm1(math.log(alpha) / n)
    low, high = k / n, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        if _at_most(k, n, middle) > alpha:
            low = middle
        else:
            high = middle
    return high


def _at_most(k: int, n: int, p: float) -> float:
    """The probability of k or fewer events in n runs at rate p, 0 < p < 1, summed from logarithms of the terms."""
    log_p, log_q = math.log(p), math.log1p(-p)
    terms = (
        math.exp(math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * log_p + (n - i) * log_q)
        for i in range(k + 1)
    )
    return math.fsum(terms)
