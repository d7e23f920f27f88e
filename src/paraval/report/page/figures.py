"""Collects what a page's charts and lists show in one pass over results and one over attempts. A
few numbers are kept per trial, not the trial."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from itertools import islice

from paraval.codec import finite
from paraval.dataclass import dataclass
from paraval.records import Outcome, TrialResult, Variant
from paraval.report.compare.case_results import CaseBook, Cell, variant_key
from paraval.report.contents import Contents
from paraval.report.page.artifacts import kept_for
from paraval.report.page.charts.data import HeatCell, HeatRow, QualityCost
from paraval.report.page.charts.over_time import AttemptTimes
from paraval.report.reasons import reason
from paraval.report.summary.columns import label_of
from paraval.report.summary.costs import is_known, spend_of
from paraval.report.summary.summary import Summary
from paraval.text.terminal import one_line
from paraval.text.words import trial_label

_MOST_HEAT_CELLS = 20_000
_MOST_HEAT_ROWS = 2_000
MOST_LISTED = 300
"""Number of failures, and as many errors."""
_LONGEST_LABEL = 120
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpassedTrial:
    """A line of a list: a trial that did not pass, and why."""

    index: int
    label: str
    outcome: str
    why: str
    times: int = 1
    """How many repeats of its case and variant ended like this one, the first of them."""

    @property
    def anchor(self) -> str:
        return trial_anchor(self.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFigures:
    """Everything before the cases, except words."""

    heat_columns: tuple[Variant, ...]
    heat: tuple[HeatRow, ...]
    heat_left_out: int
    """Number of cases that the map leaves out."""
    quality_cost: tuple[QualityCost, ...]
    times: AttemptTimes
    wrong: tuple[UnpassedTrial, ...]
    errors: tuple[UnpassedTrial, ...]
    unpassed_size: int
    """Reserved for trials that did not pass, so that they can be shown in full."""

    @property
    def linked_cases(self) -> frozenset[str]:
        """Linked from the map, by their anchors."""
        return frozenset(row.anchor for row in self.heat)

    @property
    def linked_trials(self) -> frozenset[int]:
        return frozenset(one.index for one in (*self.wrong, *self.errors))


def figures_of(contents: Contents) -> PageFigures:
    summary, book = contents.summary, contents.book
    passing = _Passing()
    for result in contents.trials:
        passing.add(result)
    heat = _heat_rows(book)
    return PageFigures(
        heat_columns=tuple(book.variants.values()),
        heat=heat,
        heat_left_out=len(book) - len(heat),
        quality_cost=tuple(passing.quality_costs(summary)),
        times=_attempt_times(contents),
        wrong=tuple(passing.wrong.values()),
        errors=tuple(passing.errors.values()),
        unpassed_size=passing.unpassed_size,
    )


def case_anchor(number: int) -> str:
    """The anchor of a case's section: our own, since its name is untrusted."""
    return f"case-{number}"


def trial_anchor(index: int) -> str:
    return f"trial-{index}"


_Ended = tuple[str, str, Outcome]
"""A case, the key of a variant, and how a trial ended."""


@dataclass(slots=True)
class _Passing:
    """What is kept of results as they pass."""

    wrong: dict[_Ended, UnpassedTrial] = field(default_factory=dict)
    errors: dict[_Ended, UnpassedTrial] = field(default_factory=dict)
    unpassed_size: int = 0
    _priced: Counter[str] = field(default_factory=Counter)
    _usd: dict[str, float] = field(default_factory=dict)

    def add(self, result: TrialResult) -> None:
        if result.outcome is not Outcome.PASSED:
            self.unpassed_size += kept_for(result)
        if result.outcome is Outcome.SKIPPED:
            return
        if result.outcome.is_judged:
            self._add_figures(result, variant_key(result.variant))
        if result.outcome is not Outcome.PASSED:
            listed = self.errors if result.outcome.is_error else self.wrong
            key = (result.case_id, variant_key(result.variant), result.outcome)
            if (before := listed.get(key)) is not None:
                listed[key] = replace(before, times=before.times + 1)
            elif len(listed) < MOST_LISTED:
                listed[key] = _unpassed(result)

    def _add_figures(self, result: TrialResult, key: str) -> None:
        spend = spend_of(result)
        if spend is not None and is_known(spend):
            self._priced[key] += 1
            self._usd[key] = self._usd.get(key, 0.0) + spend.original_known_usd

    def quality_costs(self, summary: Summary) -> Iterator[QualityCost]:
        """Only if costs are known: a point at 0 would mean that it was free."""
        for one in summary.variants:
            priced = self._priced[variant_key(one.variant)]
            if priced and one.pass_rate is not None:
                yield QualityCost(
                    label=label_of(one),
                    rate=one.pass_rate,
                    usd=self._usd[variant_key(one.variant)] / priced,
                    seconds=one.median_s,
                )


def _unpassed(result: TrialResult) -> UnpassedTrial:
    return UnpassedTrial(
        index=result.index,
        label=one_line(trial_label(replace(result, repeat=1)), _LONGEST_LABEL),
        outcome=result.outcome.value.replace("_", " "),
        why=one_line(reason(result.result), _LONGEST_REASON),
    )


# ---- the map of cases


def _heat_rows(book: CaseBook) -> tuple[HeatRow, ...]:
    """All cases; if there are too many, those that did not pass everywhere."""
    most = min(_MOST_HEAT_ROWS, _MOST_HEAT_CELLS // max(len(book.variants), 1))
    keys = list(book.variants)
    is_too_much = len(book) > most
    rows = (
        (number, case, cells)
        for number, (case, cells) in enumerate(book.rows())
        if not is_too_much or _is_worth_a_look(cells.values())
    )
    return tuple(
        HeatRow(
            label=case,
            anchor=case_anchor(number),
            cells=tuple(_heat_cell(cells.get(key)) for key in keys),
        )
        for number, case, cells in islice(rows, most)
    )


def _is_worth_a_look(cells: Iterable[Cell]) -> bool:
    return any(cell.failed or cell.errors for cell in cells)


def _heat_cell(cell: Cell | None) -> HeatCell:
    if cell is None:
        return HeatCell()
    return HeatCell(cell.passed, cell.failed, cell.errors, cell.skipped)


def _attempt_times(contents: Contents) -> AttemptTimes:
    """An attempt that has not ended, and that no other followed, runs until the last sign of life;
    when another was cut off is unknown."""
    starts, ends, latest = array("d"), array("d"), 0.0
    unended: dict[int, float] = {}
    for attempt in contents.attempts():
        latest = max(latest, attempt.started_at)
        if attempt.result is None:
            unended[attempt.index] = attempt.started_at
            continue
        unended.pop(attempt.index, None)
        starts.append(attempt.started_at)
        ends.append(attempt.started_at + (finite(attempt.result.duration_s) or 0.0))
        latest = max(latest, ends[-1])
    starts.extend(unended.values())
    ends.extend([latest] * len(unended))
    return AttemptTimes(starts, ends)
