"""CSV for spreadsheets: a row a trial, a column an axis, and no cell that acts.

Text is always quoted, numbers never, so that nothing in an answer opens a cell of its own. (A
spreadsheet told to split at something else than commas reads other cells, and can't be helped.)
`tokens` are the target's, input and output together; empty where it told none.
Long text is cut to what a spreadsheet's cell holds; the JSON report has it whole.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from paraval.records import Outcome, Scalar, Spend, TrialResult
from paraval.report.contents import Contents
from paraval.report.costs import finite, is_known, seconds, spend_of, told_usd, usage_of
from paraval.report.deed_columns import DeedColumns
from paraval.report.inert import Cell, inert
from paraval.report.summary import Summary, tokens_in
from paraval.report.wording import reason

_PASSED = {Outcome.PASSED: "true", Outcome.FAILED: "false"}


class AsCsv:
    def write(self, contents: Contents, file: TextIO) -> None:
        rows = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        columns = _Columns.of(contents.summary)
        rows.writerow(
            ["index", "case"]
            + [inert(f"variant.{axis}") for axis in columns.axes]
            + ["repeat", "outcome", "passed", "score", "attempts", "duration_s", "queued_s"]
            + [*_COST_COLUMNS, "cached", "retries", "tokens"]
            + [inert(f"usage.{name}") for name in columns.usages]
            + [inert(f"judging_usage.{name}") for name in columns.judging_usages]
            + columns.deeds.headings
            + ["reason", "notes", "output"]
        )
        for result in contents.trials:
            rows.writerow(_row(result, columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Those that differ from run to run."""

    axes: tuple[str, ...]
    usages: tuple[str, ...]
    judging_usages: tuple[str, ...]
    deeds: DeedColumns

    @classmethod
    def of(cls, summary: Summary) -> _Columns:
        return cls(
            axes=_axes(summary),
            usages=tuple(summary.usage),
            judging_usages=tuple(summary.judging.usage),
            deeds=DeedColumns.of(summary.deeds),
        )


def _row(result: TrialResult, columns: _Columns) -> list[Cell]:
    end = result.result
    usage, judging = usage_of(result), result.judging
    judging_usage = {} if judging is None else judging.usage
    return [
        result.index,
        inert(result.case_id),
        *(_scalar(result.variant.get(axis)) for axis in columns.axes),
        result.repeat,
        end.outcome.value,
        _PASSED.get(end.outcome),
        finite(end.score),
        result.attempts,
        seconds(result.total_s),
        seconds(result.queued_s),
        *_costs(spend_of(result)),
        *_costs(judging),
        *_counts(result),
        tokens_in(usage),
        *(finite(usage.get(name)) for name in columns.usages),
        *(finite(judging_usage.get(name)) for name in columns.judging_usages),
        *columns.deeds.cells(end),
        "" if end.outcome is Outcome.PASSED else inert(reason(end)),
        inert("; ".join(end.notes)),
        "" if end.output is None else inert(end.output.text),
    ]


_COST_COLUMNS = ("cost_usd", "cost_unknown", "judging_cost_usd", "judging_cost_unknown")


def _costs(spend: Spend | None) -> list[Cell]:
    """What is known of a cost, so that a column adds up, and whether there is more to it."""
    unknown = spend is not None and not is_known(spend)
    return [told_usd(spend), str(unknown).lower()]


def _counts(result: TrialResult) -> list[Cell]:
    spends = [spend for spend in (spend_of(result), result.judging) if spend is not None]
    return [sum(spend.cached for spend in spends), sum(result.retries.values())]


def _scalar(value: Scalar | None) -> Cell:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return inert(value)
    # An axis value names a variant, also where it is no number that a spreadsheet knows.
    return finite(value) if value is None or finite(value) is not None else str(value)


def _axes(summary: Summary) -> tuple[str, ...]:
    """In the order of the matrix; some variants may lack one."""

    def every() -> Iterator[str]:
        for one in summary.variants:
            yield from one.variant

    return tuple(dict.fromkeys(every()))
