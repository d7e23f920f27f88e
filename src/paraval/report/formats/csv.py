"""CSV for spreadsheets: one row per trial, one column per axis, and no cell that is executed.

Text is always quoted, numbers never, so that nothing in an answer starts a new cell. (A spreadsheet
set to another separator than commas reads other cells; that can't be prevented.) `tokens` are the
target's input plus output; empty if unknown. Columns for agents and nodes appear only if a run has
data for them. Long text is cut to the limit of a spreadsheet's cell; the JSON report has all of it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TextIO

from paraval.codec import finite
from paraval.records import Activity, Case, Change, Outcome, Scalar, Spend, TrialResult, Variant
from paraval.report.contents import Contents
from paraval.report.reasons import reason
from paraval.report.summary.costs import (
    is_known,
    seconds,
    spend_of,
    told_usd,
    usage_of,
)
from paraval.report.summary.summary import Summary, tokens_in
from paraval.report.summary.tool_activity import ToolActivity
from paraval.text.terminal import printable

# Spreadsheet cells whose text is shown and never executed.

Cell = str | float | None

_CELL_CHARACTERS = 32_000
# The second half are full-width forms, which some spreadsheets treat like the first.
_FORMULA_STARTS = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")
_LOST_STARTS = frozenset("\t\r\n")


def inert(text: str) -> str:
    """Text that a spreadsheet shows and does not compute."""
    text = printable(text[:_CELL_CHARACTERS]) + ("…" if len(text) > _CELL_CHARACTERS else "")
    acts = text[:1] in _LOST_STARTS or text.lstrip()[:1] in _FORMULA_STARTS
    return f"'{text}" if acts else text


def axis_cell(value: Scalar | None) -> Cell:
    """An axis value names a variant, even if it is not a number that a spreadsheet knows."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return inert(value)
    return finite(value) if value is None or finite(value) is not None else str(value)


def axes_in(variants: Iterable[Variant]) -> list[str]:
    """In the order of the matrix; some variants may lack one."""
    return list(dict.fromkeys(axis for variant in variants for axis in variant))


_PASSED = {Outcome.PASSED: "true", Outcome.FAILED: "false"}

Columns = tuple[Iterable[str], Callable[[TrialResult], Iterable[Cell]]]
"""Headings, and the cells of a trial under them."""
_OF_CASE = ("tags", "input", "expect")
"""Headings of what a trial's case has; empty if the cases are not known."""


class AsCsv:
    def write(self, contents: Contents, file: TextIO) -> None:
        rows = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        columns = list(_columns(contents.summary))
        rows.writerow([*(heading for headings, _ in columns for heading in headings), *_OF_CASE])
        for result, case in contents.trials_with_cases():
            told = [cell for _, cells in columns for cell in cells(result)]
            rows.writerow([*told, *_case(case)])


def _columns(summary: Summary) -> Iterator[Columns]:
    yield ("index", "case"), lambda one: (one.index, inert(one.case_id))
    axes = axes_in(one.variant for one in summary.variants)
    yield (
        [inert(f"variant.{axis}") for axis in axes],
        lambda one: [axis_cell(one.variant.get(axis)) for axis in axes],
    )
    yield (
        ("repeat", "outcome", "passed", "score", "attempts", "total_s", "target_s", "queued_s"),
        _end,
    )
    graders = list(summary.by_grader)
    yield [inert(f"grade.{name}") for name in graders], partial(_grades, graders)
    yield ("cost_usd", "cost_unknown", "spent_usd"), lambda one: _cost(spend_of(one))
    yield (
        ("judging_cost_usd", "judging_cost_unknown", "judging_spent_usd"),
        lambda one: _cost(one.judging),
    )
    yield ("cached", "cached_s"), lambda one: _cached(spend_of(one))
    yield ("judging_cached", "judging_cached_s"), lambda one: _cached(one.judging)
    yield ("retries", "tokens"), lambda one: (sum(one.retries.values()), tokens_in(usage_of(one)))
    yield _usage("usage", summary.usage, usage_of)
    yield _usage(
        "judging_usage",
        summary.judging.usage,
        lambda one: {} if one.judging is None else one.judging.original_usage,
    )
    yield from _deeds(summary.deeds)
    if summary.nodes:
        yield ("node",), lambda one: (inert(one.result.node or ""),)
    yield ("reason", "notes", "output"), _texts


def _end(result: TrialResult) -> list[Cell]:
    end = result.result
    return [
        result.repeat,
        end.outcome.value,
        _PASSED.get(end.outcome),
        finite(end.score),
        result.attempts,
        seconds(result.total_s),
        seconds(result.target_s),
        seconds(result.queued_s),
    ]


def _grades(graders: Iterable[str], result: TrialResult) -> list[Cell]:
    """The score by each grader; empty if it did not judge."""
    scores = {grade.grader: finite(grade.score) for grade in result.result.grades}
    return [scores.get(name) for name in graders]


def _case(case: Case | None) -> list[Cell]:
    if case is None:
        return [""] * len(_OF_CASE)
    return [inert("; ".join(case.tags)), _data(case.input), _data(case.expect)]


def _data(value: Any) -> str:
    """Text as it is, other data as JSON."""
    if value is None:
        return ""
    return inert(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cost(spend: Spend | None) -> list[Cell]:
    """The known cost, so that a column can be summed, whether it is incomplete, and what was spent
    by this run."""
    unknown = spend is not None and not is_known(spend)
    return [told_usd(spend), str(unknown).lower(), None if spend is None else spend.known_usd]


def _cached(spend: Spend | None) -> list[Cell]:
    """How many answers were cached, and how long they took when they were requested."""
    return [0, None] if spend is None else [spend.cached, seconds(spend.cached_s)]


def _usage(
    what: str, names: Iterable[str], usage: Callable[[TrialResult], Mapping[str, float]]
) -> Columns:
    def cells(result: TrialResult) -> list[Cell]:
        told = usage(result)
        return [finite(told.get(name)) for name in names]

    return [inert(f"{what}.{name}") for name in names], cells


def _texts(result: TrialResult) -> list[Cell]:
    end = result.result
    return [
        "" if end.outcome is Outcome.PASSED else inert(reason(end)),
        inert("; ".join(end.notes)),
        "" if end.output is None else inert(end.output.text),
    ]


# ---- what agents did


def _deeds(deeds: ToolActivity) -> Iterator[Columns]:
    if deeds.agents:
        yield ("turns", "tool_calls", "tool_errors"), lambda one: _calls(one.result.activity)
    for server in deeds.servers:
        headings = inert(f"mcp.{server}"), inert(f"mcp_calls.{server}")
        yield headings, partial(_server, server)
    if deeds.changes is not None:
        yield (
            ("files_changed", "lines_added", "lines_deleted", "tampering", "change_unknown"),
            lambda one: _change(one.result.change),
        )
    if deeds.cpu_s is not None or deeds.most_memory_bytes is not None:
        yield (
            ("cpu_s", "memory_bytes"),
            lambda one: (seconds(one.result.cpu_s), one.result.memory_bytes),
        )


def _calls(activity: Activity | None) -> list[Cell]:
    if activity is None:
        return [None, None, None]
    if not activity.tells_tools:
        return [finite(activity.turns), None, None]
    calls = sum(tool.calls for tool in activity.tools)
    failed = sum(tool.failed for tool in activity.tools)
    return [finite(activity.turns), calls, failed]


def _server(server: str, result: TrialResult) -> list[Cell]:
    """Whether it was connected, and the calls without an error; empty if unknown."""
    activity = result.result.activity
    if activity is None:
        return [None, None]
    state = activity.mcp.get(server)
    calls = activity.calls_of(server) if activity.tells_tools else None
    return [None if state is None else state.value, calls]


def _change(change: Change | None) -> list[Cell]:
    """Numbers only if complete: a lower bound in a column would be taken for the number."""
    if change is None:
        return [None] * 5
    numbers: list[Cell] = [change.files_in_all, change.lines_added, change.lines_deleted]
    return [
        *(numbers if change.unknown is None else (None, None, None)),
        inert("; ".join(change.tampering)),
        inert(change.unknown or ""),
    ]
