"""How long a trial will take, from how long its like took before.

Durations are lognormal, so all is done in logarithms, and each mean is shrunk towards what is known
more widely: trial towards case and variant, these towards the suite. A case never seen before is
taken to be rather long, so that a surprise comes early and not at the end of a run.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from paraval.records import Variant

PRIOR_WEIGHT = 2.0
"""How many observations the wider mean counts for."""
UPPER_QUARTILE_SDS = 0.6745


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known of a case in a variant: how many attempts, their mean log duration, and what
    they took of the machine."""

    case_id: str
    variant: Variant
    count: int
    mean_log_s: float
    memory_bytes: int | None = None
    """The most that one held; None: nobody saw."""
    cores: float | None = None
    """That each kept busy; None: nobody saw."""


def shrunken_mean(prior: float, count: float, total: float) -> float:
    """The mean of `count` values that sum up to `total`, pulled towards `prior`."""
    return (PRIOR_WEIGHT * prior + total) / (PRIOR_WEIGHT + count)


def variant_key(variant: Variant) -> Hashable:
    return tuple(sorted((axis, str(value)) for axis, value in variant.items()))


class Estimates:
    """Expected durations of a suite's trials."""

    def __init__(self, observations: Iterable[Observation]) -> None:
        known = [one for one in observations if one.count > 0 and math.isfinite(one.mean_log_s)]
        self.known = bool(known)
        by_case: dict[Hashable, list[Observation]] = defaultdict(list)
        by_variant: dict[Hashable, list[Observation]] = defaultdict(list)
        self._by_trial: dict[Hashable, Observation] = {}
        for one in known:
            variant = variant_key(one.variant)
            by_case[one.case_id].append(one)
            by_variant[variant].append(one)
            self._by_trial[one.case_id, variant] = one
        count = sum(one.count for one in known)
        self._suite = sum(one.count * one.mean_log_s for one in known) / count if count else 0.0
        self._cases = {key: self._mean_of(group) for key, group in by_case.items()}
        self._variants = {key: self._mean_of(group) for key, group in by_variant.items()}
        self._spread = _standard_deviation([one.mean_log_s for one in known])

    def _mean_of(self, group: list[Observation]) -> float:
        total = sum(one.count * one.mean_log_s for one in group)
        return shrunken_mean(self._suite, sum(one.count for one in group), total)

    def expected_s(self, case_id: str, variant: Variant) -> float:
        """The expected duration in seconds; 1.0 for all where nothing is known of the suite."""
        if not self.known:
            return 1.0
        key = variant_key(variant)
        by_variant = self._variants.get(key, self._suite)
        if case_id not in self._cases:
            return math.exp(by_variant + UPPER_QUARTILE_SDS * self._spread)
        prior = self._cases[case_id] + by_variant - self._suite
        seen = self._by_trial.get((case_id, key))
        if seen is None:
            return math.exp(prior)
        return math.exp(shrunken_mean(prior, seen.count, seen.count * seen.mean_log_s))


def _standard_deviation(values: list[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
