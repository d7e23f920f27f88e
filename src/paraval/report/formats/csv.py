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

from paraval.codec import finite
from paraval.records import Activity, AttemptResult, Change, Outcome, Scalar, Spend, TrialResult
from paraval.report.contents import Contents
from paraval.report.summary.costs import is_known, seconds, spend_of, told_usd, usage_of
from paraval.report.summary.summary import Summary, tokens_in
from paraval.report.summary.tool_activity import ToolActivity
from paraval.text.terminal import printable
from paraval.text.words import reason

# Cells of a spreadsheet: text in them is shown, and does nothing.

Cell = str | float | None

_CELL_CHARACTERS = 32_000
# The second half are the full-width forms, which some spreadsheets read as the first.
_FORMULA_STARTS = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")
_LOST_STARTS = frozenset("\t\r\n")


def inert(text: str) -> str:
    """Text that a spreadsheet shows and does not compute."""
    text = printable(text[:_CELL_CHARACTERS]) + ("…" if len(text) > _CELL_CHARACTERS else "")
    acts = text[:1] in _LOST_STARTS or text.lstrip()[:1] in _FORMULA_STARTS
    return f"'{text}" if acts else text


# The columns of a CSV that tell what trials did: only those that a run has something for.


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityColumns:
    """Which of them a run has."""

    agents: bool
    servers: tuple[str, ...]
    changes: bool
    machine: bool

    @classmethod
    def of(cls, deeds: ToolActivity) -> ActivityColumns:
        return cls(
            agents=deeds.agents > 0,
            servers=tuple(deeds.servers),
            changes=deeds.changes is not None,
            machine=deeds.cpu_s is not None or deeds.most_memory_bytes is not None,
        )

    @property
    def headings(self) -> list[str]:
        found = []
        if self.agents:
            found += ["turns", "tool_calls", "tool_errors"]
        for server in self.servers:
            found += [inert(f"mcp.{server}"), inert(f"mcp_calls.{server}")]
        if self.changes:
            found += ["files_changed", "lines_added", "lines_deleted", "tampering"]
            found += ["change_unknown"]
        if self.machine:
            found += ["cpu_s", "memory_bytes"]
        return found

    def cells(self, end: AttemptResult) -> list[Cell]:
        found: list[Cell] = []
        if self.agents:
            found += _turns_and_calls(end.activity)
        for server in self.servers:
            found += _server(end.activity, server)
        if self.changes:
            found += _change(end.change)
        if self.machine:
            found += [seconds(end.cpu_s), end.memory_bytes]
        return found


def _turns_and_calls(activity: Activity | None) -> list[Cell]:
    if activity is None:
        return [None, None, None]
    if not activity.tells_tools:
        return [finite(activity.turns), None, None]
    calls = sum(tool.calls for tool in activity.tools)
    failed = sum(tool.failed for tool in activity.tools)
    return [finite(activity.turns), calls, failed]


def _server(activity: Activity | None, server: str) -> list[Cell]:
    """Whether it was connected, and the calls without an error; empty where nobody tells."""
    if activity is None:
        return [None, None]
    state = activity.mcp.get(server)
    calls = activity.calls_of(server) if activity.tells_tools else None
    return [None if state is None else state.value, calls]


def _change(change: Change | None) -> list[Cell]:
    """Numbers only where they are known: a lower bound in a column would be taken for one."""
    if change is None:
        return [None, None, None, None, None]
    numbers: list[Cell] = [change.files_in_all, change.lines_added, change.lines_deleted]
    return [
        *(numbers if change.unknown is None else (None, None, None)),
        inert("; ".join(change.tampering)),
        inert(change.unknown or ""),
    ]


_PASSED = {Outcome.PASSED: "true", Outcome.FAILED: "false"}


class AsCsv:
    def write(self, contents: Contents, file: TextIO) -> None:
        rows = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        columns = _Columns.of(contents.summary)
        rows.writerow(
            ["index", "case"]
            + [inert(f"variant.{axis}") for axis in columns.axes]
            + ["repeat", "outcome", "passed", "score", "attempts", "total_s", "queued_s"]
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
    deeds: ActivityColumns

    @classmethod
    def of(cls, summary: Summary) -> _Columns:
        return cls(
            axes=_axes(summary),
            usages=tuple(summary.usage),
            judging_usages=tuple(summary.judging.usage),
            deeds=ActivityColumns.of(summary.deeds),
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
