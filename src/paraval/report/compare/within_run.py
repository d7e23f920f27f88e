"""All comparisons of a run's own variants, with their details."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from paraval.errors import RequestError
from paraval.records import RunInfo
from paraval.report.compare.compare_text import ComparisonStyle
from paraval.report.compare.comparison import Comparison
from paraval.report.compare.outline import headline, other_metric
from paraval.report.compare.sentences import Quote, figure_lines, not_made, notes, turned_lines
from paraval.report.compare.two_runs import ComparedMetric
from paraval.report.compare.variants import comparisons_of, number_left_out
from paraval.report.contents import Contents
from paraval.report.formats.markdown import code

_MOST_BYTES = 50_000
"""Of Markdown: GitHub takes 65,536 characters in a comment."""
_MOST_NAMED = 20
_EVERY = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantComparisons:
    """A run, or a part of one, whose variants are compared."""

    name: str
    run: RunInfo
    metric: ComparedMetric
    seed: int
    comparisons: tuple[Comparison, ...]
    not_made: int
    """Pairs of values that were not compared, since there are too many."""


def within_run(
    name: str,
    contents: Contents,
    *,
    metric: ComparedMetric = ComparedMetric.PASS,
    confidence: float | None = None,
    seed: int = 0,
) -> VariantComparisons:
    """RequestError where there are no two variants to compare."""
    comparisons = comparisons_of(contents.book, contents.run, confidence=confidence, seed=seed)
    if not comparisons:
        number = len(contents.book.variants)
        has = {0: "has no trials", 1: "has one variant"}.get(number, "has no two like variants")
        raise RequestError(
            f"{name} {has}: there is nothing to compare in it",
            hint=f"compare it with another: paraval compare OTHER {name}",
        )
    return VariantComparisons(
        name=name,
        run=contents.run,
        metric=metric,
        seed=seed,
        comparisons=comparisons,
        not_made=number_left_out(contents.book),
    )


def within_text(within: VariantComparisons, page: ComparisonStyle, *, most: int | None) -> str:
    """For a terminal; ends without a newline."""
    blocks = []
    for axis, family in groupby(within.comparisons, key=lambda one: one.axis):
        lines = page.wrapped(f"Compared by {page.safe(axis or '')}:")
        for comparison in family:
            lines += page.wrapped(headline(comparison, within.metric, page.safe), "  ")
            for detail in details_of(comparison, within.metric, page.safe, most):
                lines += page.wrapped(detail, "    ")
        blocks.append(lines)
    if within.not_made:
        blocks.append(page.wrapped(not_made(within.not_made)))
    return "\n\n".join("\n".join(block) for block in blocks)


def within_markdown(within: VariantComparisons) -> str:
    parts = [f"## paraval: {code(within.run.suite)}, compared\n\n"]
    for axis, family in groupby(within.comparisons, key=lambda one: one.axis):
        parts.append(f"### By {code(axis or '')}\n\n")
        for comparison in family:
            details = details_of(comparison, within.metric, code, _MOST_NAMED)
            parts.append(f"- **{headline(comparison, within.metric, code)}**\n")
            parts += (f"  - {detail}\n" for detail in details)
        parts.append("\n")
    if within.not_made:
        parts.append(f"{not_made(within.not_made)}\n\n")
    return f"{_within_bytes(parts)}Run {code(within.name)}.\n"


def details_of(
    comparison: Comparison, metric: ComparedMetric, quote: Quote, most: int | None
) -> Iterator[str]:
    """All beside the headline; of the cases that turned, so many are named."""
    yield from other_metric(comparison, metric, quote)
    yield from figure_lines(comparison, quote)
    yield from notes(comparison, quote)
    yield from turned_lines(comparison, quote, _EVERY if most is None else most)


def _within_bytes(parts: list[str]) -> str:
    room = _MOST_BYTES
    for place, part in enumerate(parts):
        room -= len(part.encode())
        if room < 0:
            return "".join(parts[:place]) + "\n… and more, that is too long for a comment\n\n"
    return "".join(parts)
