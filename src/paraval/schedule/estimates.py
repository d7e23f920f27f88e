"""How long a trial will take, and how much of the machine, according to earlier attempts.

Durations are lognormal, so everything is computed in logarithms, and each mean is shrunk towards a
wider one: trial towards case and variant, those towards the suite. A new case is assumed to be
rather long, so that a surprise comes early and not at the end of a run.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence

from paraval.dataclass import dataclass
from paraval.records import ChatTarget, FunctionTarget, Trial, Variant
from paraval.schedule.machine_gate import high_of
from paraval.schedule.messages import Work
from paraval.statistics.anytime import drawn_order

# Cases one after another, in random order: for runs that may stop early.


def case_by_case(works: Sequence[Work], trials: Sequence[Trial], seed: int) -> list[Work]:
    """The works, each with its case's block; `trials` are all trials of the plan, by index."""
    cases = drawn_order(list(dict.fromkeys(trial.case.id for trial in trials)), seed)
    blocks = {case: block for block, case in enumerate(cases)}
    return [work._replace(block=blocks[trials[work.index].case.id]) for work in works]


PRIOR_WEIGHT = 2.0
"""How many observations the wider mean counts for."""
UPPER_QUARTILE_SDS = 0.6745


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Observations of a case in a variant: number of attempts, mean log duration, and use of the
    machine."""

    case_id: str
    variant: Variant
    count: int
    mean_log_s: float
    memory_bytes: int | None = None
    """The highest memory of one attempt; None: not measured."""
    cores: float | None = None
    """Cores kept busy per attempt; None: not measured."""


def shrunken_mean(prior: float, count: float, total: float) -> float:
    """The mean of `count` values that sum up to `total`, pulled towards `prior`."""
    return (PRIOR_WEIGHT * prior + total) / (PRIOR_WEIGHT + count)


def variant_key(variant: Variant) -> Hashable:
    if not variant:
        return ()
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
        """The expected duration in seconds; 1.0 for all trials if the suite is unknown."""
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


# What a trial takes of the machine: as declared by its target, else as measured in earlier runs.

MEMORY_MARGIN = 1.1
"""Margin on top of the memory measured before."""


def of_the_target(trial: Trial) -> Hashable:
    """Trials of a variant share their target object."""
    return id(trial.target)


class MachineNeeds:
    """Machine use of a suite's trials."""

    def __init__(
        self,
        observations: Iterable[Observation],
        kind_of: Callable[[Trial], Hashable] = of_the_target,
    ) -> None:
        """`kind_of`: trials with the same kind use the machine alike."""
        self._kind_of = kind_of
        self._kinds: dict[Hashable, int] = {}
        self._seen: dict[Hashable, Observation] = {}
        memory: dict[Hashable, list[int]] = defaultdict(list)
        cores: dict[Hashable, list[float]] = defaultdict(list)
        for one in observations:
            variant = variant_key(one.variant)
            self._seen[one.case_id, variant] = one
            if one.memory_bytes is not None:
                memory[variant].append(one.memory_bytes)
            if one.cores is not None:
                cores[variant].append(one.cores)
        self._memory = {variant: high_of(peaks) for variant, peaks in memory.items()}
        self._cores = {variant: sum(each) / len(each) for variant, each in cores.items()}

    def fill_in(self, work: Work, trial: Trial) -> Work:
        """The work, with its trial's use of the machine."""
        target = trial.target
        kind = self._kinds.setdefault(self._kind_of(trial), len(self._kinds))
        work = work._replace(kind=kind)
        if isinstance(target, ChatTarget):
            return work._replace(memory_bytes=0, cores=0.0)
        if isinstance(target, FunctionTarget):
            # Inside the engine's own process, memory and CPU cannot be attributed to a trial.
            inside = work._replace(memory_bytes=0, cores=0.0)
            return self._as_seen(work, trial) if target.isolate else inside
        seen, declared = self._as_seen(work, trial), target.limits
        memory = seen.memory_bytes if declared.memory_bytes is None else declared.memory_bytes
        return seen._replace(memory_bytes=memory, cpu=declared.cpu)

    def _as_seen(self, work: Work, trial: Trial) -> Work:
        """From the same case in the same variant, else from the variant."""
        variant = variant_key(trial.variant)
        memory, cores = self._memory.get(variant), self._cores.get(variant)
        same = self._seen.get((trial.case.id, variant))
        if same is not None:
            memory = memory if same.memory_bytes is None else same.memory_bytes
            cores = cores if same.cores is None else same.cores
        reserved = None if memory is None else int(MEMORY_MARGIN * memory)
        return work._replace(memory_bytes=reserved, cores=cores)
