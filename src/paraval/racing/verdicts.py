"""What the measurements of candidates say: how fast each one is, who won, and why not the others.

Pure. Who is measured, and how often, is decided by `halving` and the course.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paraval.racing.findings import Block, Speedup
from paraval.racing.halving import final_confidence, one_of
from paraval.racing.request import TOTAL, Accept
from paraval.racing.standings import Status
from paraval.report.wording import counted
from paraval.statistics.means import mean_interval
from paraval.statistics.speed import block_log_ratio, speedup_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What is known of the speed of a candidate that is right."""

    name: str
    screening: tuple[Block, ...] = ()
    final: tuple[Block, ...] = ()
    """Empty: it was no finalist."""
    held: str = ""
    """Why it cannot win, whatever was measured; empty: it can."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Those that count: a finalist's luck in the rounds before is left behind."""
        return self.final or self.screening


@dataclass(frozen=True, slots=True, kw_only=True)
class Among:
    """How many had a chance, those that came to no end among them."""

    screened: int
    finalists: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    status: Status
    reason: str
    speedup: Speedup | None = None
    cases: Mapping[str, Speedup] = field(default_factory=dict)


def verdicts_on(measured: Sequence[Measured], accept: Accept, among: Among) -> dict[str, Verdict]:
    """By name."""
    judging = _Judging(measured, accept, among)
    return {one.name: judging.verdict(one) for one in measured}


def speedup_of(blocks: Sequence[Block], confidence: float, case: str = TOTAL) -> Speedup | None:
    """None where nothing was measured."""
    if not blocks:
        return None
    ratios = [log_ratio_of(block, case) for block in blocks]
    estimate, low, high = speedup_interval(ratios, confidence)
    return Speedup(estimate=estimate, low=low, high=high, blocks=len(blocks))


def log_ratio_of(block: Block, case: str = TOTAL) -> float:
    """Raises ValueError where a side has no such measurement, or one that is no time."""
    sides = (block.baseline, block.candidate)
    try:
        baseline, candidate = ([sample[case] for sample in side] for side in sides)
    except KeyError:
        raise ValueError(f"a process told no measurement of '{case}'") from None
    return block_log_ratio(baseline, candidate)


def cases_of(blocks: Sequence[Block], confidence: float) -> dict[str, Speedup]:
    """By benchmark case, of those that every process told."""
    samples = [sample for block in blocks for sample in (*block.baseline, *block.candidate)]
    if not samples:
        return {}
    told = [
        name
        for name in samples[0]
        if name != TOTAL and all(_is_time(sample.get(name)) for sample in samples)
    ]
    found = {name: speedup_of(blocks, confidence, name) for name in told}
    return {name: speedup for name, speedup in found.items() if speedup is not None}


def extent(speedup: Speedup) -> str:
    """`3.05 to 3.38 times as fast`, `faster by 2 to 3 %`, `from 1 % slower to 3 % faster`."""
    low, high = speedup.low, speedup.high
    if not math.isfinite(high):
        return "unknown from a single block"
    if low >= 2:
        return f"{_times(low)} to {_times(high)} times as fast"
    if low >= 1:
        return f"faster by {_span(low - 1, high - 1)}"
    if high <= 1:
        return f"slower by {_span(1 - high, 1 - low)}"
    return f"from {_percent(1 - low)} % slower to {_percent(high - 1)} % faster"


class _Judging:
    """All candidates against what was asked for, and against the winner."""

    def __init__(self, measured: Sequence[Measured], accept: Accept, among: Among) -> None:
        self._accept = accept
        self._final_confidence = final_confidence(accept.confidence, among.finalists)
        self._screened_confidence = one_of(among.screened, accept.confidence)
        self._speedups = {one.name: self._speedup(one) for one in measured}
        self._finalists = {one.name: one for one in measured if one.final}
        able = [one for one in measured if one.final and not one.held and self._is_shown(one)]
        # The first of equals: max keeps it.
        self._winner = max(able, key=self._estimate, default=None)

    def verdict(self, one: Measured) -> Verdict:
        status, reason = self._status(one)
        return Verdict(
            status=status,
            reason=reason,
            speedup=self._speedups[one.name],
            cases=cases_of(one.blocks, self._confidence(one)),
        )

    def _status(self, one: Measured) -> tuple[Status, str]:
        speedup = self._speedups[one.name]
        if speedup is None:
            return Status.NOT_SHOWN, one.held or "it was not measured"
        if speedup.high < 1:
            return Status.SLOWER, extent(speedup)
        if one.held:
            return Status.NOT_SHOWN, one.held
        if one is self._winner:
            return Status.WON, self._praise(one, speedup)
        if self._is_shown(one):
            return self._shown(one, speedup)
        if speedup.low > self._accept.speedup:
            # Among many that are screened, some come so far by luck.
            words = f"{extent(speedup)} while it was screened, and it was not measured again"
            return Status.NOT_SHOWN, words
        return Status.NOT_SHOWN, self._shortfall(speedup)

    def _praise(self, winner: Measured, speedup: Speedup) -> str:
        blocks = counted(len(winner.final), "fresh block")
        praise = f"{extent(speedup)}, by {blocks}"
        for other in self._finalists.values():
            if other is not winner and self._is_shown(other) and not _are_apart(winner, other):
                praise += f"; {other.name} cannot be told apart from it"
        return praise

    def _shown(self, one: Measured, speedup: Speedup) -> tuple[Status, str]:
        """Of one that is fast enough, and did not win."""
        if self._winner is None:
            return Status.NOT_SHOWN, (
                f"{extent(speedup)} while it was screened, which no finals confirmed"
            )
        ahead = self._winner.name
        if one.final and not _are_apart(self._winner, one):
            return Status.ACCEPTED, f"{extent(speedup)}; {ahead} cannot be told apart from it"
        if one.final:
            return Status.ACCEPTED, f"{extent(speedup)}; {ahead} more so"
        return Status.ACCEPTED, f"{extent(speedup)} while it was screened; {ahead} was ahead"

    def _shortfall(self, speedup: Speedup) -> str:
        asked = _percent(self._accept.speedup - 1)
        if not math.isfinite(speedup.high):
            return "a single block shows nothing"
        if speedup.low <= 1:
            return f"within the noise: {extent(speedup)}"
        if speedup.high <= self._accept.speedup:
            return f"{extent(speedup)}, less than the {asked} % asked for"
        return f"{extent(speedup)}; that it is more than the {asked} % asked for is not shown"

    def _is_shown(self, one: Measured) -> bool:
        """Of one that was only screened, more is asked: it is one of many."""
        speedup = self._speedups[one.name]
        if not one.final:
            speedup = speedup_of(one.screening, self._screened_confidence)
        return speedup is not None and speedup.low > self._accept.speedup

    def _estimate(self, one: Measured) -> float:
        speedup = self._speedups[one.name]
        return 0.0 if speedup is None else speedup.estimate

    def _speedup(self, one: Measured) -> Speedup | None:
        return speedup_of(one.blocks, self._confidence(one))

    def _confidence(self, one: Measured) -> float:
        return self._final_confidence if one.final else self._accept.confidence


def _are_apart(one: Measured, other: Measured) -> bool:
    """Whether the difference between two finalists is more than noise, at 95 %.

    Blocks of the same number were measured side by side, so they are compared in pairs.
    """
    pairs = zip(one.final, other.final, strict=False)
    _, low, high = mean_interval([log_ratio_of(a) - log_ratio_of(b) for a, b in pairs])
    return not low <= 0 <= high


def _is_time(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def _times(ratio: float) -> str:
    """`3.05`, `33,280`: digits behind the point only where they say something."""
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:,.0f}"


def _span(low: float, high: float) -> str:
    first, last = _percent(low), _percent(high)
    return f"{last} %" if first == last else f"{first} to {last} %"


def _percent(share: float) -> str:
    """`2.5`, `3`, `40`: a digit behind the point only where it says something."""
    value = share * 100
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")
