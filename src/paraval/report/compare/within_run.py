"""All comparisons of a run's own variants, with their details."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby

from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.records import RunInfo, value_text
from paraval.report.compare.comparison import Comparison, Side
from paraval.report.compare.outline import headline, other_metric
from paraval.report.compare.sentences import Quote, figure_lines, not_made, notes, turned_lines
from paraval.report.compare.two_runs import ComparedMetric
from paraval.report.compare.variants import comparisons_of, number_left_out
from paraval.report.contents import Contents, choice_text
from paraval.text.document import Paragraph, Part, Subheading, TextDocument, render
from paraval.text.tables import Medium, Table, TableRow

_MOST_NAMED = 20
_EVERY = 1 << 62
_LONGEST_COMMAND = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantComparisons:
    """A run, or a part of one, whose variants are compared."""

    name: str
    run: RunInfo
    metric: ComparedMetric
    seed: int
    comparisons: tuple[Comparison, ...]
    not_made: int
    """Pairs of values that were not compared because there are too many."""


def within_run(
    name: str,
    contents: Contents,
    *,
    metric: ComparedMetric = ComparedMetric.PASS,
    confidence: float | None = None,
    seed: int = 0,
) -> VariantComparisons:
    """Raises RequestError if there are no two variants to compare."""
    comparisons = comparisons_of(contents.book, contents.run, confidence=confidence, seed=seed)
    if not comparisons:
        number = len(contents.book.variants)
        has = {0: "has no trials", 1: "has one variant"}.get(number, "has no comparable variants")
        raise RequestError(
            f"{name} {has}: nothing to compare",
            hint=f"compare it with another run: paraval compare OTHER {name}",
        )
    return VariantComparisons(
        name=name,
        run=contents.run,
        metric=metric,
        seed=seed,
        comparisons=comparisons,
        not_made=number_left_out(contents.book),
    )


def within_text(within: VariantComparisons, out: Medium, *, every_case: bool = False) -> str:
    most = None if every_case else _MOST_NAMED
    sections: list[Sequence[Part]] = []
    for axis, family in groupby(within.comparisons, key=lambda one: one.axis):
        rows = [
            TableRow(
                beside=headline(comparison, within.metric, out.quote),
                below=tuple(details_of(comparison, within.metric, out.quote, most)),
                strong=True,
            )
            for comparison in family
        ]
        by = "Compared by" if out.is_terminal else "By"
        sections.append(
            [Subheading(f"{by} {out.quote(axis or '')}:", ""), Table(rows=rows, most_bytes=50_000)]
        )
    if within.not_made:
        sections.append([Paragraph(not_made(within.not_made))])
    if out.is_terminal and (command := both_answers(within)):
        sections.append([Paragraph(out.quote(command, _LONGEST_COMMAND))])
    document = TextDocument(
        title=f"paraval: {out.quote(within.run.suite)}, compared",
        sections=sections,
        closing=f"Run {out.quote(within.name)}.",
    )
    return render(document, out)


def both_answers(within: VariantComparisons) -> str:
    """How to see both answers of cases that changed, of the first comparison that has any."""
    for one in within.comparisons:
        if one.turned.broke or one.turned.mended:
            sides = (f"{within.name}:{_choice(side)}" for side in (one.reference, one.subject))
            return f"Both answers of changed cases: paraval compare {shlex.join(sides)}"
    return ""


def _choice(side: Side) -> str:
    return choice_text({axis: value_text(value) for axis, value in side.choice.items()})


def details_of(
    comparison: Comparison, metric: ComparedMetric, quote: Quote, most: int | None
) -> Iterator[str]:
    """All results beside the headline; `most`: how many changed cases are named, None for all."""
    yield from other_metric(comparison, metric, quote)
    yield from figure_lines(comparison, quote)
    yield from notes(comparison, quote)
    yield from turned_lines(comparison, quote, _EVERY if most is None else most)
