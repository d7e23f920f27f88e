"""The comparisons that a run's own variants make: value against value, axis by axis."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TypedDict

from paraval.records import RunInfo
from paraval.report.comparing.cells import CaseBook
from paraval.report.comparing.compared import adjusted, compare, resamples_for
from paraval.report.comparing.comparison import Comparison
from paraval.report.comparing.contests import Contest, contests_of, made_of
from paraval.report.comparing.early import compared_any_time
from paraval.report.comparing.pairing import row_of
from paraval.report.comparing.pairs import Pairs

USUAL_CONFIDENCE = 0.95


def comparisons_of(
    book: CaseBook, run: RunInfo, *, confidence: float | None = None, seed: int = 0
) -> tuple[Comparison, ...]:
    """For every axis with two or more values; none where there is nothing to compare.

    Of two values the one that passes more is the subject, of equal ones the later: so it reads as
    a result. Where an axis has more than a few, each is held against the first. Without a
    `confidence`, a run that may stop early is told as surely as it was decided, others at 95 %.
    """
    contests = made_of(contests_of(book))
    if run.stop is not None:
        rule = run.stop if confidence is None else replace(run.stop, confidence=confidence)
        return compared_any_time(book, contests, rule, run.seed)
    gathered = [Pairs() for _ in contests]
    for case, cells in book.rows():
        row = row_of(cells)
        for contest, pairs in zip(contests, gathered, strict=True):
            contest.matchup.add_figures(pairs, case, row, row)
    drawing = _Drawing(
        confidence=USUAL_CONFIDENCE if confidence is None else confidence,
        seed=seed,
        resamples=resamples_for(len(book), len(contests)),
    )
    compared = [
        _settled(contest, pairs, drawing) for contest, pairs in zip(contests, gathered, strict=True)
    ]
    by_axis = groupby(compared, key=lambda comparison: comparison.axis)
    return tuple(one for _, family in by_axis for one in adjusted(list(family)))


def number_left_out(book: CaseBook) -> int:
    """Pairs of values that were not compared, since there are too many."""
    contests = contests_of(book)
    return len(contests) - len(made_of(contests))


class _Drawing(TypedDict):
    """As `compare` takes it."""

    confidence: float
    seed: int
    resamples: int


def _settled(contest: Contest, pairs: Pairs, drawing: _Drawing) -> Comparison:
    subject, reference = contest.sides
    if not contest.is_upright and (pairs.mean or 0.0) < 0:
        pairs, subject, reference = pairs.mirrored(), reference, subject
    comparison = compare(pairs, subject, reference, **drawing)
    return replace(comparison, axis=contest.values.axis, over=contest.over)
