"""The table of a history: a row a run, and below it one a variant where there are several.

How it is drawn is left to the terminal, to Markdown and to the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from paraval.report.costs import NO_PRICE
from paraval.report.history.records import Entry, History
from paraval.report.history.words import PARTIAL_SIGN
from paraval.report.stopping import early_stops
from paraval.report.summary import Tally
from paraval.report.table import label_of, taken
from paraval.report.wording import UNKNOWN, duration, money, percent, percent_range


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A run, or a variant of one."""

    label: str
    entry: Entry
    tally: Tally
    is_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading and what stands under it."""

    heading: str
    cell: Callable[[Row], str]
    of_runs: bool = False
    """True: it says nothing of a variant."""


def rows_of(entry: Entry) -> Iterator[Row]:
    """A run with one variant is told by its own row."""
    yield Row(label=entry.run.id, entry=entry, tally=entry.summary, is_run=True)
    if len(entry.summary.variants) > 1:
        for one in entry.summary.variants:
            yield Row(label=label_of(one), entry=entry, tally=one, is_run=False)


def columns_of(history: History, *, intervals: bool = True) -> list[Column]:
    """Those that are missed least stand last; a narrow page does without them."""
    entries = history.entries
    rate = Column(heading="pass rate (95 %)", cell=_rate_with_interval)
    columns = [
        rate if intervals else Column(heading="rate", cell=_rate),
        Column(heading="errors", cell=lambda row: f"{row.tally.errors:,}"),
        Column(heading="trials", cell=_trials),
    ]
    if any(entry.summary.total_cost_usd is not None for entry in entries):
        columns.append(Column(heading="cost", cell=cost))
    return [
        *columns,
        Column(heading="median", cell=lambda row: taken(row.tally.median_s, row.tally)),
        Column(heading="took", cell=lambda row: duration(row.entry.run.wall_s), of_runs=True),
        Column(heading="began (UTC)", cell=lambda row: began(row.entry), of_runs=True),
    ]


def cell_of(column: Column, row: Row) -> str:
    return "" if column.of_runs and not row.is_run else column.cell(row)


def began(entry: Entry) -> str:
    """`2026-01-31 12:00`."""
    return f"{datetime.fromtimestamp(entry.run.started_at, UTC):%Y-%m-%d %H:%M}"


def cost(row: Row) -> str:
    """Judges included; `$0.12+` where some of it is unknown."""
    tally = row.tally
    unknown = tally.target.is_partly_unknown or tally.judging.is_partly_unknown
    if tally.total_cost_usd is None:
        return NO_PRICE if unknown else UNKNOWN
    return money(tally.total_cost_usd) + "+" * unknown


def _rate(row: Row) -> str:
    rate = row.tally.pass_rate
    if rate is None:
        return UNKNOWN
    return f"{PARTIAL_SIGN if row.entry.is_partial else ''}{percent(rate)}"


def _rate_with_interval(row: Row) -> str:
    interval = row.tally.pass_rate_interval
    return _rate(row) if interval is None else f"{_rate(row)} ({percent_range(*interval)})"


def _trials(row: Row) -> str:
    """Those that came to an end by themselves, of those planned, where others did not."""
    run, tally = row.entry.run, row.tally
    early = early_stops(tally)
    if row.is_run and row.entry.is_partial and run.done < run.trials:
        return f"{run.done - early:,}/{run.trials:,}"
    # A test that skips itself is done with; a trial that an early stop left out never began.
    ended = tally.trials - tally.skipped + tally.left_out - early
    return f"{tally.trials:,}" if ended == tally.trials else f"{ended:,}/{tally.trials:,}"
