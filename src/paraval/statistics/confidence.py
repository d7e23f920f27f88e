"""What a confidence may be, and what it asks of a normal variable."""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist


def check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not at {confidence}")


@lru_cache(maxsize=64)
def normal_quantile(confidence: float) -> float:
    """How many standard deviations to each side of its mean hold a normal variable with this
    confidence."""
    check_confidence(confidence)
    return NormalDist().inv_cdf(0.5 + confidence / 2)
