"""Turns measurements into verdicts: how fast each candidate is, who won and why. Also plans the
number of blocks.

Pure. `rounds` decides who is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from paraval.dataclass import dataclass
from paraval.racing.findings import Block, Speedup
from paraval.racing.request import TOTAL, AcceptSpec, BenchMetric, BenchSpec
from paraval.racing.standings import Status
from paraval.statistics.rates import block_log_ratio, mean_interval, speedup_interval
from paraval.text.words import counted

# How often each candidate is measured: in its round, then in finals on fresh measurements.

FIRST_BLOCKS = 4
"""Blocks for each candidate in its round: eight processes on each side. Three are too few to show
that one of several candidates is slower."""
LEAST_FINAL_BLOCKS = 5
MOST_BLOCKS = 15
"""Blocks for one candidate in the finals; more hardly narrow the interval."""
PROCESSES_OF_A_BLOCK = 4
_FINALS_S = 60.0
"""Target time for the finals together, within the limits on blocks ..."""
LONGEST_FINALS_S = 300.0
"""... and the longest: candidates that don't fit are not measured again, the slowest first."""
LEAST_FINALISTS = 2


def final_blocks(bench: BenchSpec, process_s: float, finalists: int = 1) -> int:
    """The number of blocks for each finalist."""
    if bench.blocks is not None:
        return bench.blocks
    worth = MOST_BLOCKS
    if process_s > 0:
        each_s = PROCESSES_OF_A_BLOCK * process_s * max(1, finalists)
        worth = round(min(_FINALS_S / each_s, MOST_BLOCKS))
    return max(LEAST_FINAL_BLOCKS, worth)


def most_finalists(bench: BenchSpec, process_s: float) -> int:
    """How many candidates can be measured again in a reasonable time."""
    blocks = bench.blocks or LEAST_FINAL_BLOCKS
    each_s = max(blocks * PROCESSES_OF_A_BLOCK * process_s, 1e-9)
    return max(LEAST_FINALISTS, int(min(LONGEST_FINALS_S / each_s, 1e6)))


def final_confidence(confidence: float, finalists: int) -> float:
    """The confidence level of each finalist's interval."""
    return one_of(finalists, confidence)


def one_of(number: int, confidence: float) -> float:
    """The Bonferroni correction: with more candidates, chance favors one more easily."""
    return 1 - (1 - confidence) / max(1, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSpeed:
    """The measurements of a passing candidate."""

    name: str
    screening: tuple[Block, ...] = ()
    final: tuple[Block, ...] = ()
    """Empty if it was not a finalist."""
    held: str = ""
    """Why it cannot win, regardless of measurements; empty if it can."""
    has_cautions: bool = False
    """It loses to one without, unless it is clearly faster."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks that count: for a finalist, only fresh ones, to exclude earlier luck."""
        return self.final or self.screening


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateCounts:
    """How many candidates had a chance, including those that did not finish."""

    screened: int
    finalists: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceVerdict:
    status: Status
    reason: str
    speedup: Speedup | None = None
    cases: Mapping[str, Speedup] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricWords:
    """How a difference in what was measured is worded."""

    equal: str = "as fast"
    less: str = "faster"
    more: str = "slower"


IN_TIME = MetricWords()


def words_of(bench: BenchSpec) -> MetricWords:
    if bench.metric == BenchMetric.MEMORY:
        return MetricWords(equal="as small", less="smaller", more="larger")
    return MetricWords()


def verdicts_on(
    measured: Sequence[MeasuredSpeed],
    accept: AcceptSpec,
    among: CandidateCounts,
    words: MetricWords = IN_TIME,
) -> dict[str, RaceVerdict]:
    """The verdict on each candidate, by name."""
    judging = _RaceJudge(measured, accept, among, words)
    return {one.name: judging.verdict(one) for one in measured}


def speedup_of(blocks: Sequence[Block], confidence: float, case: str = TOTAL) -> Speedup | None:
    """The speedup with its interval; None if nothing was measured."""
    if not blocks:
        return None
    ratios = [log_ratio_of(block, case) for block in blocks]
    estimate, low, high = speedup_interval(ratios, confidence)
    return Speedup(estimate=estimate, low=low, high=high, blocks=len(blocks))


def log_ratio_of(block: Block, case: str = TOTAL) -> float:
    """The log speedup of a block. Raises ValueError if a side lacks a valid measurement."""
    sides = (block.baseline, block.candidate)
    try:
        baseline, candidate = ([sample[case] for sample in side] for side in sides)
    except KeyError:
        raise ValueError(f"a process reported no measurement of '{case}'") from None
    return block_log_ratio(baseline, candidate)


def cases_of(blocks: Sequence[Block], confidence: float) -> dict[str, Speedup]:
    """The speedup by benchmark case, for cases that every process reported."""
    samples = [sample for block in blocks for sample in (*block.baseline, *block.candidate)]
    if not samples:
        return {}
    names = [
        name
        for name in samples[0]
        if name != TOTAL and all(_is_time(sample.get(name)) for sample in samples)
    ]
    found = {name: speedup_of(blocks, confidence, name) for name in names}
    return {name: speedup for name, speedup in found.items() if speedup is not None}


def extent(speedup: Speedup, words: MetricWords) -> str:
    """`3.05–3.38× as fast`, `2 to 3% faster`, `1% slower to 3% faster`."""
    low, high = speedup.low, speedup.high
    if not math.isfinite(high):
        return "unknown from a single block"
    if low >= 2:
        return f"{_times(low)}–{_times(high)}× {words.equal}"
    if low >= 1:
        return f"{_span(low - 1, high - 1)} {words.less}"
    if high <= 1:
        return f"{_span(1 - high, 1 - low)} {words.more}"
    worse, better = _percent(1 - low), _percent(high - 1)
    return f"{worse}% {words.more} to {better}% {words.less}"


class _RaceJudge:
    """Judges candidates by the required speedup and against the winner."""

    def __init__(
        self,
        measured: Sequence[MeasuredSpeed],
        accept: AcceptSpec,
        among: CandidateCounts,
        words: MetricWords,
    ) -> None:
        self._accept = accept
        self._words = words
        self._final_confidence = final_confidence(accept.confidence, among.finalists)
        self._screened_confidence = one_of(among.screened, accept.confidence)
        self._speedups = {one.name: self._speedup(one) for one in measured}
        self._finalists = {one.name: one for one in measured if one.final}
        able = [
            one
            for one in measured
            if one.final and not one.held and self._is_shown(one) and not self._slow_case(one)
        ]
        # The first of equals wins: max keeps it.
        self._winner = max(able, key=self._estimate, default=None)
        if self._winner is not None and self._winner.has_cautions:
            clean = [one for one in able if not one.has_cautions]
            equal = [one for one in clean if not _are_apart(self._winner, one)]
            self._winner = max(equal, key=self._estimate, default=self._winner)

    def verdict(self, one: MeasuredSpeed) -> RaceVerdict:
        status, reason = self._status(one)
        return RaceVerdict(
            status=status,
            reason=reason,
            speedup=self._speedups[one.name],
            cases=cases_of(one.blocks, self._confidence(one)),
        )

    def _status(self, one: MeasuredSpeed) -> tuple[Status, str]:
        speedup = self._speedups[one.name]
        if speedup is None:
            return Status.NOT_SHOWN, one.held or "not measured"
        if self._is_slower(one):
            return Status.SLOWER, extent(speedup, self._words)
        if one.held:
            return Status.NOT_SHOWN, one.held
        if slow := self._slow_case(one):
            return Status.NOT_SHOWN, slow
        if one is self._winner:
            return Status.WON, self._praise(one, speedup)
        if self._is_shown(one):
            return self._shown(one, speedup)
        return Status.NOT_SHOWN, self._shortfall(speedup)

    def _praise(self, winner: MeasuredSpeed, speedup: Speedup) -> str:
        blocks = counted(len(winner.final), "fresh block")
        praise = f"{extent(speedup, self._words)} ({blocks})"
        for other in self._finalists.values():
            if other is not winner and self._is_shown(other) and not _are_apart(winner, other):
                praise += f"; not distinguishable from {other.name}"
        return praise

    def _shown(self, one: MeasuredSpeed, speedup: Speedup) -> tuple[Status, str]:
        """The verdict on one that is fast enough but did not win."""
        if self._winner is None:
            return (
                Status.NOT_SHOWN,
                f"{extent(speedup, self._words)} in screening, not confirmed by finals",
            )
        ahead = self._winner.name
        if one.final and not _are_apart(self._winner, one):
            clean = ", which has no caution" * (one.has_cautions and not self._winner.has_cautions)
            return (
                Status.ACCEPTED,
                f"{extent(speedup, self._words)}; not distinguishable from {ahead}{clean}",
            )
        if one.final:
            return Status.ACCEPTED, f"{extent(speedup, self._words)}; {ahead} is {self._words.less}"
        return Status.ACCEPTED, f"{extent(speedup, self._words)} in screening; {ahead} was ahead"

    def _shortfall(self, speedup: Speedup) -> str:
        required = _percent(self._accept.speedup - 1)
        if not math.isfinite(speedup.high):
            return "a single block is not enough"
        if speedup.low <= 1:
            return f"within noise: {extent(speedup, self._words)}"
        if speedup.high <= self._accept.speedup:
            return f"{extent(speedup, self._words)}, less than the required {required}%"
        return f"{extent(speedup, self._words)}; not shown to exceed the required {required}%"

    def _is_shown(self, one: MeasuredSpeed) -> bool:
        """Whether it is fast enough."""
        speedup = self._speedups[one.name]
        return speedup is not None and speedup.low > self._accept.speedup

    def _slow_case(self, one: MeasuredSpeed) -> str:
        """Which case of the benchmark is slower than allowed; empty if none is."""
        each = self._accept.each
        cases = cases_of(one.blocks, self._confidence(one)) if each is not None else {}
        slow = {name: speed for name, speed in cases.items() if speed.estimate < (each or 0.0)}
        if not slow:
            return ""
        name = min(slow, key=lambda case: slow[case].estimate)
        ratio = f"{slow[name].estimate:.2f} times {self._words.equal}"
        return f"case '{name}' is {ratio}, required {each:g}"

    def _is_slower(self, one: MeasuredSpeed) -> bool:
        """Whether it is slower, as one of all that were measured."""
        speedup = speedup_of(one.blocks, self._screened_confidence)
        return speedup is not None and speedup.high < 1

    def _estimate(self, one: MeasuredSpeed) -> float:
        speedup = self._speedups[one.name]
        return 0.0 if speedup is None else speedup.estimate

    def _speedup(self, one: MeasuredSpeed) -> Speedup | None:
        return speedup_of(one.blocks, self._confidence(one))

    def _confidence(self, one: MeasuredSpeed) -> float:
        """That of the interval which is shown, and which decides. One that was only screened must
        show more, as one of many."""
        return self._final_confidence if one.final else self._screened_confidence


def _are_apart(one: MeasuredSpeed, other: MeasuredSpeed) -> bool:
    """Whether the difference between two finalists is more than noise, at 95%.

    Blocks with the same number were measured together, so they are compared in pairs.
    """
    pairs = zip(one.final, other.final, strict=False)
    _, low, high = mean_interval([log_ratio_of(a) - log_ratio_of(b) for a, b in pairs])
    return not low <= 0 <= high


def _is_time(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def _times(ratio: float) -> str:
    """`3.05`, `33,280`: decimals only where they matter."""
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:,.0f}"


def _span(low: float, high: float) -> str:
    first, last = _percent(low), _percent(high)
    return f"{last}%" if first == last else f"{first} to {last}%"


def _percent(share: float) -> str:
    """`2.5`, `3`, `40`: a decimal only where it matters."""
    value = share * 100
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")
