"""The bootstrap of a mean, corrected for bias and acceleration (BCa; Efron 1987).

Resamples are drawn by chance as long as that is quick. For more values than that, how the mean of
a resample is spread is computed instead, by the saddlepoint formula of Lugannani and Rice, whose
error is then far below that of chance.
"""

from __future__ import annotations

import bisect
import math
import random
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist, fmean
from typing import NamedTuple

from paraval.statistics.means import quantile

MOST_DRAWS = 5_000_000
"""Values that are drawn at most: under a second."""
STEEPEST_TILT = 20.0
"""In standard errors: no bound that anyone asks for lies further out."""
HALVINGS = 24
"""They leave a few millionths of a standard error."""
NORMAL = NormalDist()


def bootstrap_quantiles(
    values: Sequence[float], confidence: float, *, seed: int, resamples: int
) -> tuple[float, float]:
    """The bounds of the mean. The values are finite, and not all the same."""
    if len(values) * resamples <= MOST_DRAWS:
        return _drawn(values, confidence, seed=seed, resamples=resamples)
    return _computed(values, confidence)


def _drawn(
    values: Sequence[float], confidence: float, *, seed: int, resamples: int
) -> tuple[float, float]:
    rng = random.Random(seed)  # noqa: S311 - no secret: the same seed must give the same interval
    n = len(values)
    means = sorted(sum(rng.choices(values, k=n)) / n for _ in range(resamples))
    mean, dust = fmean(values), 1e-12 * max(map(abs, values))
    # Resamples as high as the mean itself count half: with few values there are many of them.
    below = (bisect.bisect_left(means, mean - dust) + bisect.bisect_right(means, mean + dust)) / 2
    # Chance alone can put all of few resamples on one side.
    share = min(max(below, 0.5), resamples - 0.5) / resamples
    low, high = _levels(values, share, confidence)
    return (quantile(means, low), quantile(means, high))


def _levels(values: Sequence[float], share: float, confidence: float) -> tuple[float, float]:
    """Where in the spread of resampled means the bounds are, when a share of them lies below the
    mean. The jackknife of a mean has a closed form."""
    mean = fmean(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    cubes = math.fsum((value - mean) ** 3 for value in values)
    acceleration = cubes / (6 * squares**1.5)
    bias = NORMAL.inv_cdf(share)

    def level(p: float) -> float:
        z = bias + NORMAL.inv_cdf(p)
        return NORMAL.cdf(bias + z / (1 - acceleration * z))

    tail = (1 - confidence) / 2
    return (level(tail), level(1 - tail))


def _computed(values: Sequence[float], confidence: float) -> tuple[float, float]:
    mean = fmean(values)
    spread = math.sqrt(fmean((value - mean) ** 2 for value in values))
    # A thousandth of the spread is lost in the mean of so many, and bounds the work.
    scaled = Counter(round((value - mean) / spread, 3) for value in values)
    resampled = _Resampled(tuple(scaled.items()), len(values))
    low, high = _levels(values, resampled.at(0.0).share, confidence)
    return (mean + spread * resampled.quantile(low), mean + spread * resampled.quantile(high))


class _Point(NamedTuple):
    mean: float
    share: float
    """Of the resampled means, those up to this one."""


class _Resampled:
    """How the mean of a resample is spread, for values of mean 0 and spread 1 with their counts."""

    def __init__(self, counts: Sequence[tuple[float, int]], n: int) -> None:
        self._counts = counts
        self._n = n
        self._skew = math.fsum(value**3 * count for value, count in counts) / n

    def at(self, tilt: float) -> _Point:
        """The point of the spread where values weigh as much as exp(tilt * value)."""
        top = max(tilt * value for value, _ in self._counts)
        weights = [count * math.exp(tilt * value - top) for value, count in self._counts]
        total = math.fsum(weights)
        mean, square = (
            math.fsum(w * value**power for w, (value, _) in zip(weights, self._counts, strict=True))
            / total
            for power in (1, 2)
        )
        exponent = tilt * mean - top - math.log(total / self._n)
        root = math.copysign(math.sqrt(max(0.0, 2 * self._n * exponent)), tilt)
        slope = tilt * math.sqrt(self._n * max(0.0, square - mean * mean))
        if abs(root) < 1e-3 or slope == 0:
            # 1 / root - 1 / slope has a gap at 0, where its limit is known.
            correction = self._skew / (6 * math.sqrt(self._n))
        else:
            correction = 1 / root - 1 / slope
        return _Point(mean, NORMAL.cdf(root) + NORMAL.pdf(root) * correction)

    def quantile(self, level: float) -> float:
        low, high = (edge / math.sqrt(self._n) for edge in (-STEEPEST_TILT, STEEPEST_TILT))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if self.at(middle).share < level:
                low = middle
            else:
                high = middle
        return self.at(high).mean
