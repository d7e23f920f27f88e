"""CSV for spreadsheets: a row a trial, a column an axis, and no cell that acts.

Text is always quoted, numbers never, so that nothing in an answer opens a cell of its own. (A
spreadsheet told to split at something else than commas reads other cells, and can't be helped.)
Long text is cut to what a spreadsheet's cell holds; the JSON report has it whole.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import TextIO

from paraval.records import Outcome, Scalar, Spend, TrialResult
from paraval.report.as_json import seconds
from paraval.report.contents import Contents
from paraval.report.costs import NO_PRICE, finite, spend_of, usage_of
from paraval.report.summary import Summary
from paraval.report.text import printable
from paraval.report.wording import reason

Cell = str | float | None

_PASSED = {Outcome.PASSED: "true", Outcome.FAILED: "false"}
_CELL_CHARACTERS = 32_000
# The second half are the full-width forms, which some spreadsheets read as the first.
_FORMULA_STARTS = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")
_LOST_STARTS = frozenset("\t\r\n")


class AsCsv:
    def write(self, contents: Contents, file: TextIO) -> None:
        rows = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        axes, usages = _axes(contents.summary), tuple(contents.summary.usage)
        rows.writerow(
            ["index", "case"]
            + [inert(f"variant.{axis}") for axis in axes]
            + ["repeat", "outcome", "passed", "score", "attempts", "duration_s", "queued_s"]
            + ["cost_usd", *_COST_COLUMNS]
            + [inert(f"usage.{name}") for name in usages]
            + ["reason", "output"]
        )
        for result in contents.trials:
            rows.writerow(_row(result, axes, usages))


def inert(text: str) -> str:
    """Text that a spreadsheet shows and does not compute."""
    text = printable(text[:_CELL_CHARACTERS]) + ("…" if len(text) > _CELL_CHARACTERS else "")
    acts = text[:1] in _LOST_STARTS or text.lstrip()[:1] in _FORMULA_STARTS
    return f"'{text}" if acts else text


def _row(result: TrialResult, axes: tuple[str, ...], usages: tuple[str, ...]) -> list[Cell]:
    end = result.result
    usage = usage_of(result)
    return [
        result.index,
        inert(result.case_id),
        *(_scalar(result.variant.get(axis)) for axis in axes),
        result.repeat,
        end.outcome.value,
        _PASSED.get(end.outcome),
        finite(end.score),
        result.attempts,
        seconds(result.total_s),
        seconds(result.queued_s),
        *_costs(result),
        *(finite(usage.get(name)) for name in usages),
        "" if end.outcome is Outcome.PASSED else inert(reason(end)),
        "" if end.output is None else inert(end.output.text),
    ]


_COST_COLUMNS = ("judging_cost_usd", "cached", "retries")


def _costs(result: TrialResult) -> list[Cell]:
    spend = spend_of(result)
    cached = (spend.cached if spend else 0) + (result.judging.cached if result.judging else 0)
    return [_dollars(spend), _dollars(result.judging), cached, sum(result.retries.values())]


def _dollars(spend: Spend | None) -> Cell:
    """A word where the price is unknown: an empty cell says that nothing was spent."""
    if spend is None:
        return None
    cost = finite(spend.cost_usd)
    return NO_PRICE if cost is None else cost


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
