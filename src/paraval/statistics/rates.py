"""Rates: how often something happened, and what that tells.

What is counted, and over what, is decided by those who call.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from paraval.statistics.confidence import check_confidence


def wilson(successes: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a proportion.

    `successes` may be a fraction: a rate over repeats, scaled to the number of cases. Nothing
    measured (`n` = 0) leaves everything possible.
    """
    check_confidence(confidence)
    if n == 0:
        return (0.0, 1.0)
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} are not possible")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    # At the ends the formula gives 0 and 1 but for rounding, which would show as a bound that
    # excludes what was measured.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return (low, high)
