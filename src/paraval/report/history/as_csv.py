"""A history for spreadsheets: a row a run and variant, a column an axis, and no cell that acts."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from paraval.records import Scalar
from paraval.report.as_json import moment
from paraval.report.costs import finite, seconds
from paraval.report.history.records import Entry, History
from paraval.report.history.words import notes
from paraval.report.inert import Cell, inert
from paraval.report.summary import Tally, VariantSummary

_RUN = ("run", "started_at", "state", "planned", "done", "wall_s")
_FIGURES = (
    "trials",
    "passed",
    "failed",
    "errors",
    "skipped",
    "cases",
    "pass_rate",
    "pass_rate_low",
    "pass_rate_high",
    "cost_usd",
    "cost_unknown",
    "median_s",
)


def history_csv(history: History) -> str:
    page = io.StringIO()
    rows = csv.writer(page, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    axes = _axes(history)
    rows.writerow(
        [*_RUN, *(inert(f"variant.{axis}") for axis in axes), *_FIGURES, "changed", "notes"]
    )
    for entry in history.entries:
        beside = [
            inert("; ".join(change.words for change in entry.changes)),
            inert("; ".join(notes(entry, str))),
        ]
        for choices, tally in _variants(entry, axes):
            rows.writerow([*_run(entry), *choices, *_figures(tally), *beside])
    return page.getvalue()


def _variants(entry: Entry, axes: tuple[str, ...]) -> Iterator[tuple[list[Cell], Tally]]:
    """A run without any result has a row, too."""
    if not entry.summary.variants:
        yield ["" for _ in axes], entry.summary
    for one in entry.summary.variants:
        yield [_scalar(one, axis) for axis in axes], one


def _run(entry: Entry) -> list[Cell]:
    run = entry.run
    state = entry.standing.value
    began = moment(run.started_at)
    return [inert(run.id), began, state, run.trials, run.done, seconds(run.wall_s)]


def _figures(tally: Tally) -> list[Cell]:
    low, high = tally.pass_rate_interval or (None, None)
    unknown = tally.target.is_partly_unknown or tally.judging.is_partly_unknown
    return [
        tally.trials,
        tally.passed,
        tally.failed,
        tally.errors,
        tally.skipped,
        tally.cases,
        tally.pass_rate,
        low,
        high,
        finite(tally.total_cost_usd),
        str(unknown).lower(),
        seconds(tally.median_s),
    ]


def _scalar(one: VariantSummary, axis: str) -> Cell:
    value: Scalar | None = one.variant.get(axis)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return inert(value)
    return finite(value) if value is None or finite(value) is not None else str(value)


def _axes(history: History) -> tuple[str, ...]:
    variants = (one.variant for entry in history.entries for one in entry.summary.variants)
    return tuple(dict.fromkeys(axis for variant in variants for axis in variant))
