"""The table of a summary: which columns it has and what stands in them.

How it is drawn is left to the terminal and to Markdown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paraval.report.summary import Summary, Tally, VariantSummary
from paraval.report.wording import UNKNOWN, duration, percent, percent_range, variant_label

TOTAL = "total"
WITHOUT_MATRIX = "all trials"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading and what stands under it."""

    heading: str
    cell: Callable[[Tally], str]
    is_spare: bool = False
    """True: a narrow page does without."""


def columns_of(summary: Summary, *, intervals: bool = True) -> list[Column]:
    """The columns that say something about this run, those that can be spared last."""
    columns = [
        Column(heading="passed", cell=lambda tally: f"{tally.passed:,}"),
        Column(heading="failed", cell=lambda tally: f"{tally.failed:,}"),
        Column(heading="errors", cell=lambda tally: f"{tally.errors:,}"),
    ]
    if summary.skipped:
        columns.append(Column(heading="skipped", cell=lambda tally: f"{tally.skipped:,}"))
    if intervals:
        columns.append(Column(heading="pass rate (95 %)", cell=_rate_with_interval))
    else:
        columns.append(Column(heading="pass rate", cell=_rate))
    if summary.target.is_told:
        columns.append(Column(heading="cost", cell=lambda tally: str(tally.target)))
    if summary.judging.is_told:
        judges = Column(heading="judges", cell=lambda tally: str(tally.judging), is_spare=True)
        columns.append(judges)
    median = Column(heading="median", cell=lambda tally: duration(tally.median_s), is_spare=True)
    columns.append(median)
    return columns


def rows_of(summary: Summary) -> list[tuple[str, Tally]]:
    """A row a variant, in plan order, and the total where there are several."""
    rows: list[tuple[str, Tally]] = [(label_of(one), one) for one in summary.variants]
    return rows if len(rows) == 1 else [*rows, (TOTAL, summary)]


def label_of(one: VariantSummary) -> str:
    """What a variant is called beside its figures."""
    return variant_label(one.variant) or WITHOUT_MATRIX


def _rate(tally: Tally) -> str:
    return UNKNOWN if tally.pass_rate is None else percent(tally.pass_rate)


def _rate_with_interval(tally: Tally) -> str:
    interval = tally.pass_rate_interval
    return _rate(tally) if interval is None else f"{_rate(tally)} ({percent_range(*interval)})"
