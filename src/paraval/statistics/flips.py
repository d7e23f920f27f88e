"""How a sum is spread when each of its terms may as well have the other sign.

Counted where that is possible, drawn by chance where it isn't.
"""

from __future__ import annotations

import math
import operator
import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from paraval.statistics.distributions import MOST_COUNTED, coin_chance

DUST = 1e-9
"""Sums that differ by less are the same: what rounding leaves of thirds and tenths."""
MOST_ENUMERATED = 16
FINEST_GRID = 100
"""Differences are looked at as multiples of a half, a third, ... and at last a hundredth."""
MOST_STEPS = 3_000_000
"""Work that counting may take: under half a second."""
LEFT_OUT = 2e-36
"""More than the windows of all sizes of a grid leave out together, so that no p is 0."""
MOST_FLIPPED = 4_096
"""So many of the largest terms are flipped one by one."""


class Grid(NamedTuple):
    """Terms as whole numbers: how many there are of each size, and how far their sum is from 0."""

    sizes: dict[int, int]
    distance: int

    @property
    def steps(self) -> int:
        """What counting all sums takes."""
        work = reach = 0
        for size, count in sorted(self.sizes.items()):
            work += (reach + 1) * len(_window(count))
            reach += size * count
        return work


def flip_p(terms: Sequence[float], *, seed: int, resamples: int) -> float:
    """How likely a sum at least as far from 0 is, when every sign is a fair coin."""
    # A 0 never changes the sum.
    terms = [term for term in terms if abs(term) > DUST]
    if not terms:
        return 1.0
    grid = _on_grid(terms)
    if grid is not None and grid.steps <= MOST_STEPS:
        return _counted(grid)
    sizes = [abs(term) for term in terms]
    least = abs(math.fsum(terms)) - DUST * math.fsum(sizes)
    if len(sizes) <= MOST_ENUMERATED:
        return _enumerated(sizes, least)
    return _drawn(sizes, least, seed=seed, resamples=resamples)


def _on_grid(terms: Sequence[float]) -> Grid | None:
    distinct = Counter(terms)
    for parts in range(1, FINEST_GRID + 1):
        if all(abs(term * parts - round(term * parts)) < DUST for term in distinct):
            sizes: Counter[int] = Counter()
            total = 0
            for term, count in distinct.items():
                sizes[abs(round(term * parts))] += count
                total += round(term * parts) * count
            return Grid(dict(sizes), abs(total))
    return None


def _counted(grid: Grid) -> float:
    """Over all sums, from how many of each size have a plus."""
    if grid.distance == 0:
        return 1.0
    chances = [1.0]
    for size, count in sorted(grid.sizes.items()):
        wider = [0.0] * (len(chances) + size * count)
        for plus in _window(count):
            share = coin_chance(plus, count)
            for place, chance in enumerate(chances, size * plus):
                wider[place] += chance * share
        chances = wider
    whole = len(chances) - 1
    # A sum is twice its positive part, less the whole.
    part = (whole + grid.distance) // 2
    upper = math.fsum(chances[place] for place in range(part, whole + 1))
    left_out = LEFT_OUT if max(grid.sizes.values()) > MOST_COUNTED else 0.0
    return min(1.0, 2 * upper + left_out)


def _window(count: int) -> range:
    """How many of so many coins may show heads; of very many, 13 standard deviations to each side
    are enough."""
    if count <= MOST_COUNTED:
        return range(count + 1)
    reach = math.ceil(13 * math.sqrt(count) / 2)
    return range(max(0, count // 2 - reach), min(count, (count + 1) // 2 + reach) + 1)


def _enumerated(sizes: Sequence[float], least: float) -> float:
    # The first keeps its sign: the other half of all sums is the mirror of this one.
    sums = [sizes[0]]
    for size in sizes[1:]:
        sums = [value + size for value in sums] + [value - size for value in sums]
    return sum(abs(value) >= least for value in sums) / len(sums)


def _drawn(sizes: Sequence[float], least: float, *, seed: int, resamples: int) -> float:
    """By chance, eight signs for each random byte; and the sum that was seen counts as one.

    Beyond the largest few thousand the rest are added as one normal variable, which so many
    smaller terms are: the work stays the same for any number of them.
    """
    rng = random.Random(seed)  # noqa: S311 - no secret: the same seed must give the same p
    ordered = sorted(sizes, reverse=True)
    flipped, rest = ordered[:MOST_FLIPPED], ordered[MOST_FLIPPED:]
    tables = [_sums_of_signs(flipped[i : i + 8]) for i in range(0, len(flipped), 8)]
    spread = math.sqrt(math.fsum(size * size for size in rest))
    as_far = 1
    for _ in range(resamples):
        total = sum(map(operator.getitem, tables, rng.randbytes(len(tables))))
        if rest:
            total += rng.gauss(0, spread)
        as_far += abs(total) >= least
    return as_far / (resamples + 1)


def _sums_of_signs(sizes: Sequence[float]) -> list[float]:
    """The sum for each of the 256 ways to give signs to eight terms, or fewer."""
    sums = [0.0]
    for place in range(8):
        size = sizes[place] if place < len(sizes) else 0.0
        sums = [value + size for value in sums] + [value - size for value in sums]
    return sums
