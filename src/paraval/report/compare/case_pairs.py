"""Pairs the cases of two sides, each reduced to a few numbers; `compute` evaluates them."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from paraval.dataclass import dataclass
from paraval.records import Variant
from paraval.report.compare.case_results import CaseBook, Cell, Graders
from paraval.report.compare.comparison import CaseChanges, Interval, LeftOut

DUST = 1e-12
"""Rounding error of thirds and tenths."""
_SHORT = math.log(0.01)
"""Log of seconds: shorter times mostly reflect what else the machine was doing."""


class CellFigures(NamedTuple):
    """The figures of a cell."""

    judged: int
    passed: int
    errors: int
    skipped: int
    is_flaky: bool
    rate: float | None
    worst: float | None
    """The rate if all errors had failed ..."""
    best: float | None
    """... or passed; None if nothing ended."""
    scores: Mapping[Graders, float]
    """Mean scores, by the graders that judged."""
    has_more_scores: bool
    """Whether some score adds to pass or fail."""
    log_seconds: float | None
    usd: float | None
    """Of a trial."""
    timeouts: int


class Setting(NamedTuple):
    """The same case in the same setting (the choices of all other axes), on both sides."""

    subject: CellFigures
    reference: CellFigures


Settings = Sequence[Setting]


Repeats = tuple[tuple[int, int], tuple[int, int]]
"""For a setting: repeats judged, and how many of them passed; subject, reference."""


class Pairs:
    """The pairs of a comparison. A pair is a case; its repeats and settings are a cluster."""

    def __init__(self) -> None:
        self.rates_subject = array("d")
        self.rates_reference = array("d")
        self.differences = array("d")
        """Differences of those rates."""
        self.scores = array("d")
        """Differences of the mean scores."""
        self.log_seconds = array("d")
        """Logarithms of the ratios."""
        self.usd: list[tuple[float, float]] = []
        """Of a trial of each case that has a price on both sides; subject, reference."""
        self.seconds = (array("d"), array("d"))
        """Of the cases with a ratio; subject, reference."""
        self._log_times = (0.0, 0.0)
        """Sums of log times over the same cases; subject, reference."""
        self.timeouts = (0, 0)
        """In settings that both sides have; subject, reference."""
        self.worst = array("d")
        """The differences if errors had ended as badly for the subject as possible ..."""
        self.best = array("d")
        """... and as well as possible; also for cases without a verdict because of errors."""
        self.has_errors = False
        self.has_more_scores = False
        self.are_scores_partial = False
        """Whether some answers were scored by other graders on the other side: these scores are in
        no difference."""
        self.is_single = True
        """Whether each case was judged once on each side."""
        self.repeats: Counter[tuple[Repeats, ...]] = Counter()
        """The number of cases of each kind."""
        self._left_out: dict[str, list[str]] = {}
        self._turned: dict[str, list[str]] = {}

    def __len__(self) -> int:
        """The number of cases judged on both sides."""
        return len(self.differences)

    def add(self, case: str, settings: Settings) -> None:
        """Add a case with its settings on both sides; at least one."""
        judged = judged_of(settings)
        if judged:
            self._add_judged(case, judged)
        else:
            self._add_unjudged(case, settings)
        self._add_bounds(settings)
        _append_mean(self.log_seconds, [_gap(a.log_seconds, b.log_seconds) for a, b in settings])
        self._add_times(settings)
        priced = [(a.usd, b.usd) for a, b in settings if a.usd is not None and b.usd is not None]
        if len(priced) == 1:
            self.usd += priced
        elif priced:
            subject, reference = zip(*priced, strict=True)
            self.usd.append((fmean(subject), fmean(reference)))

    def add_only(self, case: str, *, on_subject: bool) -> None:
        """Add a case that the other side lacks."""
        self._leave_out(case, "only_subject" if on_subject else "only_reference")

    @property
    def mean(self) -> float | None:
        return fmean(self.differences) if self.differences else None

    @property
    def is_short(self) -> bool:
        """Whether cases were too short on both sides for a meaningful ratio; by the geometric
        mean, so that a pause or two make no difference."""
        return max(self._log_times) < _SHORT * len(self.log_seconds)

    @property
    def if_errors(self) -> Interval | None:
        """The least and the most that the mean could be, whatever errors hide; None
        without errors."""
        return (fmean(self.worst), fmean(self.best)) if self.has_errors else None

    @property
    def left_out(self) -> LeftOut:
        return LeftOut(**{why: tuple(cases) for why, cases in self._left_out.items()})

    @property
    def turned(self) -> CaseChanges:
        return CaseChanges(**{how: tuple(cases) for how, cases in self._turned.items()})

    def _add_judged(self, case: str, judged: Settings) -> None:
        subject = _mean([one.rate for one, _ in judged])
        reference = _mean([other.rate for _, other in judged])
        self.rates_subject.append(subject)
        self.rates_reference.append(reference)
        self.differences.append(difference_of(judged))
        gaps = [_score_gap(one.scores, other.scores) for one, other in judged]
        _append_mean(self.scores, gaps)
        self.are_scores_partial = self.are_scores_partial or None in gaps
        is_flaky = False
        kinds: list[Repeats] = []
        for one, other in judged:
            kinds.append(((one.judged, one.passed), (other.judged, other.passed)))
            is_flaky = is_flaky or one.is_flaky or other.is_flaky
            if one.has_more_scores or other.has_more_scores:
                self.has_more_scores = True
            if one.judged > 1 or other.judged > 1:
                self.is_single = False
        if len(kinds) > 1:
            self.is_single = False
            kinds.sort()
        self.repeats[tuple(kinds)] += 1
        if is_flaky:
            self._turned.setdefault("flaky", []).append(case)
        elif subject == 0 and reference == 1:
            self._turned.setdefault("broke", []).append(case)
        elif subject == 1 and reference == 0:
            self._turned.setdefault("mended", []).append(case)

    def _add_unjudged(self, case: str, settings: Settings) -> None:
        self._leave_out(case, "unjudged")
        if not any(setting.subject.judged for setting in settings):
            self._leave_out(case, "unjudged_subject")
        if not any(setting.reference.judged for setting in settings):
            self._leave_out(case, "unjudged_reference")

    def _add_times(self, settings: Settings) -> None:
        subject = reference = 0.0
        known = 0
        ended, ended_reference = self.timeouts
        for one, other in settings:
            ended, ended_reference = ended + one.timeouts, ended_reference + other.timeouts
            if one.log_seconds is not None and other.log_seconds is not None:
                subject, reference = subject + one.log_seconds, reference + other.log_seconds
                known += 1
                self.seconds[0].append(math.exp(one.log_seconds))
                self.seconds[1].append(math.exp(other.log_seconds))
        self.timeouts = (ended, ended_reference)
        if known:
            before, before_reference = self._log_times
            self._log_times = (before + subject / known, before_reference + reference / known)

    def _add_bounds(self, settings: Settings) -> None:
        _append_mean(self.worst, [_gap(one.worst, other.best) for one, other in settings])
        _append_mean(self.best, [_gap(one.best, other.worst) for one, other in settings])
        for one, other in settings:
            if (one.errors and other.worst is not None) or (other.errors and one.worst is not None):
                self.has_errors = True

    def _leave_out(self, case: str, why: str) -> None:
        self._left_out.setdefault(why, []).append(case)


def figures_of(cell: Cell) -> CellFigures:
    passed, judged = cell.passed, cell.passed + cell.failed
    ended = judged + cell.errors
    return CellFigures(
        judged=judged,
        passed=passed,
        errors=cell.errors,
        skipped=cell.skipped,
        is_flaky=cell.is_flaky,
        rate=passed / judged if judged else None,
        worst=passed / ended if ended else None,
        best=(passed + cell.errors) / ended if ended else None,
        scores={graders: total / number for graders, (number, total) in cell.scores.items()},
        has_more_scores=cell.scored > 0 and abs(cell.sum_score - passed) > DUST,
        timeouts=cell.timeouts,
        log_seconds=_log_mean(cell.sum_s, cell.timed),
        usd=cell.sum_usd / cell.priced if cell.priced else None,
    )


def judged_of(settings: Settings) -> Settings:
    """Settings that are judged on both sides."""
    return [pair for pair in settings if pair[0].judged and pair[1].judged]


def difference_of(judged: Settings) -> float:
    """Subject minus reference for one case, as a share; every setting counts the same."""
    return _mean([_gap(one.rate, other.rate) for one, other in judged])


def _gap(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _score_gap(one: Mapping[Graders, float], other: Mapping[Graders, float]) -> float | None:
    """The mean difference of scores by the same graders; None if there are none."""
    gaps = [score - other[graders] for graders, score in one.items() if graders in other]
    return _mean(gaps) if gaps else None


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    value = known[0] if len(known) == 1 else math.fsum(known) / len(known)
    return 0.0 if abs(value) < DUST else value


def _append_mean(means: array[float], values: Sequence[float | None]) -> None:
    if len(values) == 1:
        value = values[0]
        if value is not None:
            means.append(0.0 if abs(value) < DUST else value)
    elif any(value is not None for value in values):
        means.append(_mean(values))


def _log_mean(total: float, number: int) -> float | None:
    return math.log(total / number) if number and 0 < total < math.inf else None


# Matching the cells of two values of an axis, or of two books, case by case.

Cells = Mapping[str, Cell]
"""The cells of a case, by variant key."""
Row = Mapping[str, CellFigures]
"""The figures of each cell, computed once for all matchups."""


def row_of(cells: Cells) -> Row:
    return {key: figures_of(cell) for key, cell in cells.items()}


class UnpairableError(ValueError):
    """Two sides have nothing in common to pair by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matchup:
    """Which variants are compared: (the subject's key, the reference's), same setting."""

    keys: tuple[tuple[str, str], ...]

    @property
    def turned(self) -> Matchup:
        """The same with the sides swapped."""
        return Matchup(keys=tuple((other, one) for one, other in self.keys))

    def add_row(self, pairs: Pairs, case: str, subject: Row, reference: Row) -> None:
        """Add a case with its cells on both sides, if it has any."""
        settings = self.settings(subject, reference)
        if settings:
            pairs.add(case, settings)
        elif any(key in subject for key, _ in self.keys):
            pairs.add_only(case, on_subject=True)
        elif any(key in reference for _, key in self.keys):
            pairs.add_only(case, on_subject=False)

    def settings(self, subject: Row, reference: Row) -> list[Setting]:
        return [
            Setting(subject[one], reference[other])
            for one, other in self.keys
            if one in subject and other in reference
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedBooks:
    """Two books, and how their variants are paired."""

    pairs: Pairs
    """Over all shared variants, with the case as unit."""
    shared: tuple[Variant, ...]
    """Variants that both have, named as in the subject; if each side has only one variant, the
    subject's, whatever the other is called."""
    only_subject: tuple[Variant, ...]
    only_reference: tuple[Variant, ...]
    matchups: tuple[Matchup, ...]
    """One for each shared variant."""


def pair_books(subject: CaseBook, reference: CaseBook) -> PairedBooks:
    """Pair by case and variant if some variants are shared, else by case if each side has only one.

    Raises UnpairableError otherwise: then one variant of each must be chosen.
    """
    keys = shared_variants(subject.variants, reference.variants)
    if not keys:
        raise UnpairableError("no variant in common: choose one of each")
    taken = set(keys.values())
    return PairedBooks(
        pairs=pairs_of(subject, reference, Matchup(keys=tuple(keys.items()))),
        shared=tuple(subject.variants[key] for key in keys),
        only_subject=tuple(v for key, v in subject.variants.items() if key not in keys),
        only_reference=tuple(v for key, v in reference.variants.items() if key not in taken),
        matchups=tuple(Matchup(keys=(pair,)) for pair in keys.items()),
    )


def shared_variants(
    subject: Mapping[str, Variant], reference: Mapping[str, Variant]
) -> dict[str, str]:
    """Variants with the same axes and values, as subject key -> reference key.

    If each side has just one, they are paired whatever they are called: a run without a matrix can
    be compared with one with a single model.
    """
    if len(subject) == len(reference) == 1:
        return dict(zip(subject, reference, strict=True))
    return same_variants(subject, reference)


def same_variants(
    subject: Mapping[str, Variant], reference: Mapping[str, Variant]
) -> dict[str, str]:
    """Variants shared by axes and values only."""
    theirs = {_identity(variant): key for key, variant in reference.items()}
    return {
        key: theirs[same]
        for key, variant in subject.items()
        if (same := _identity(variant)) in theirs
    }


def pairs_of(subject: CaseBook, reference: CaseBook, matchup: Matchup) -> Pairs:
    """The pairs of two books; cases in the subject's order, then those only in the reference."""
    (pairs,) = pairs_of_each(subject, reference, [matchup])
    return pairs


def pairs_of_each(
    subject: CaseBook, reference: CaseBook, matchups: Sequence[Matchup]
) -> list[Pairs]:
    """The pairs of several matchups, in one pass."""
    gathered = [Pairs() for _ in matchups]
    is_one = subject is reference
    for case, cells in subject.rows():
        ours = row_of(cells)
        theirs = ours if is_one else row_of(reference.cells_of(case))
        for matchup, pairs in zip(matchups, gathered, strict=True):
            matchup.add_row(pairs, case, ours, theirs)
    for case, cells in () if is_one else reference.rows():
        if case not in subject:
            theirs = row_of(cells)
            for matchup, pairs in zip(matchups, gathered, strict=True):
                matchup.add_row(pairs, case, {}, theirs)
    return gathered


def _identity(variant: Variant) -> tuple[tuple[str, str], ...]:
    """Identifies a variant across runs, whatever the order of its axes. Values are compared as
    texts, since 1, 1.0 and True are equal."""
    return tuple(sorted((axis, repr(value)) for axis, value in variant.items()))
