"""A history as files: which endings there are. How one is written, `report.report` knows."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paraval.codec import finite, scalar_shown, well_formed
from paraval.errors import RequestError
from paraval.records import Scalar, Variant
from paraval.report.compare.compare_report import write_whole
from paraval.report.compare.compare_text import ComparisonStyle
from paraval.report.formats.csv import Cell, inert
from paraval.report.formats.json import moment, to_json
from paraval.report.formats.markdown import code
from paraval.report.history.history import History, HistoryEntry, Shift
from paraval.report.history.history_table import (
    PARTIAL_LEGEND,
    HistoryColumn,
    RunRow,
    cell_of,
    columns_of,
    heading,
    left_out,
    notes,
    rows_of,
    shift_words,
)
from paraval.report.report import check_place
from paraval.report.summary.costs import seconds
from paraval.report.summary.summary import Tally, VariantSummary
from paraval.text.terminal import columns, cut_middle
from paraval.text.words import counted

# A history for spreadsheets: a row a run and variant, a column an axis, and no cell that acts.

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


def _variants(entry: HistoryEntry, axes: tuple[str, ...]) -> Iterator[tuple[list[Cell], Tally]]:
    """A run without any result has a row, too."""
    if not entry.summary.variants:
        yield ["" for _ in axes], entry.summary
    for one in entry.summary.variants:
        yield [_scalar(one, axis) for axis in axes], one


def _run(entry: HistoryEntry) -> list[Cell]:
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


# A history for programs: `paraval history --json`, and `-o history.json`.

SCHEMA = 1


def history_as_dict(history: History) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "suite": well_formed(history.suite),
        "choice": _texts(history.choice),
        "older": history.older,
        "unfitting": history.unfitting,
        "unreadable": _texts(history.unreadable),
        "runs": [_run_as_dict(entry) for entry in history.entries],
    }


def _run_as_dict(entry: HistoryEntry) -> dict[str, Any]:
    run = entry.run
    return {
        "id": well_formed(run.id),
        "started_at": moment(run.started_at),
        "ended_at": moment(run.ended_at),
        "state": entry.standing.value,
        "partial": entry.is_partial,
        "planned": run.trials,
        "done": run.done,
        "wall_s": seconds(run.wall_s),
        "suite_cases": entry.suite_cases,
        "cases_in_run": entry.cases,
        "chosen_variants": well_formed(entry.chosen_variants) or None,
        "suite_variants": entry.suite_variants,
        **_figures_as_dict(entry.summary),
        "parts": _texts(run.parts),
        "changed": [change.part for change in entry.changes],
        "changes": [change.words for change in entry.changes],
        "compared_with": entry.compared_with,
        "shifts": [_shift(shift) for shift in entry.shifts],
        "variants": [
            {"variant": variant_as_dict(one.variant), **_figures_as_dict(one)}
            for one in entry.summary.variants
        ],
    }


def _figures_as_dict(tally: Tally) -> dict[str, Any]:
    return {
        "trials": tally.trials,
        "passed": tally.passed,
        "failed": tally.failed,
        "errors": tally.errors,
        "skipped": tally.skipped,
        "cases": tally.cases,
        "pass_rate": tally.pass_rate,
        "pass_rate_interval": tally.pass_rate_interval,
        "rate_if_errors_failed": tally.rate_if_errors_failed,
        "rate_if_errors_passed": tally.rate_if_errors_passed,
        "score": finite(tally.score),
        "cost_usd": finite(tally.total_cost_usd),
        "cost_unknown": tally.target.is_partly_unknown or tally.judging.is_partly_unknown,
        "median_s": seconds(tally.median_s),
        "p95_s": seconds(tally.p95_s),
        "timeouts": tally.timeouts,
    }


def _shift(shift: Shift) -> dict[str, Any]:
    return {
        "variant": None if shift.variant is None else variant_as_dict(shift.variant),
        "since": shift.since,
        "finding": "better" if shift.difference > 0 else "worse",
        "difference": shift.difference,
        "interval": shift.interval,
        "confidence": shift.confidence,
        "cases": shift.cases,
        "at_any_time": shift.at_any_time,
        "sentence": shift_words(shift, well_formed),
    }


def variant_as_dict(variant: Variant) -> dict[str, Any]:
    """An axis value names a variant: what JSON cannot say as a number is said as text."""
    return {well_formed(axis): scalar_shown(value) for axis, value in variant.items()}


def _texts(told: Mapping[str, str]) -> dict[str, str]:
    return {well_formed(name): well_formed(text) for name, text in told.items()}


# A history in Markdown that fits a comment on a pull request.

_MOST_BYTES = 55_000
"""GitHub takes 65,536 characters in a comment."""


def history_markdown(history: History) -> str:
    shown = columns_of(history)
    runs = [_markdown_run(entry, shown) for entry in history.entries]
    fitting = _newest_within(_MOST_BYTES, runs)
    more = len(runs) - len(fitting)
    closing = [f"{counted(more, 'older run')} not shown."] if more else []
    if any(entry.is_partial for entry in history.entries):
        closing.append(PARTIAL_LEGEND)
    closing += left_out(history)
    parts = [f"## paraval: {heading(history, code)}", _table(shown, fitting), *closing]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(shown: list[HistoryColumn], runs: list[str]) -> str:
    if not runs:
        return ""
    head = f"| run | {' | '.join(column.heading for column in shown)} | |\n"
    return f"{head}| --- |{' ---: |' * len(shown)} --- |\n{''.join(runs)}".rstrip("\n")


def _markdown_run(entry: HistoryEntry, shown: list[HistoryColumn]) -> str:
    beside = "<br>".join(notes(entry, code))
    lines = []
    for row in rows_of(entry):
        label = code(row.label) if row.is_run else f"· {code(row.label)}"
        cells = " | ".join(cell_of(column, row) for column in shown)
        lines.append(f"| {label} | {cells} | {beside if row.is_run else ''} |\n")
    return "".join(lines)


def _newest_within(most_bytes: int, runs: list[str]) -> list[str]:
    fitting: list[str] = []
    for run in reversed(runs):
        most_bytes -= len(run.encode())
        if most_bytes < 0:
            break
        fitting.insert(0, run)
    return fitting


# A history on the terminal; it reads the same without colour and without UTF-8.

_GAP = "  "
_INDENT = "  "
_LONGEST_BESIDE = 28
"""Labels up to so wide stand in full beside all figures."""
_SHORTEST_BESIDE = 20
"""As wide as the id of a run: labels are never cut to less."""
_WITH_INTERVALS = 38


def history_text(history: History, page: ComparisonStyle) -> str:
    """Ends without a newline."""
    blocks = [[page.safe(heading(history, page.safe))], list(_text_table(history, page))]
    closing = [PARTIAL_LEGEND] if any(entry.is_partial for entry in history.entries) else []
    closing += left_out(history)
    blocks.append([line for sentence in closing for line in page.wrapped(page.safe(sentence))])
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _text_table(history: History, page: ComparisonStyle) -> Iterator[str]:
    rows = {entry.run.id: list(rows_of(entry)) for entry in history.entries}
    every = [row for of_run in rows.values() for row in of_run]
    if not every:
        return
    shown, width = _fitting(history, every, page)
    widths = [_width_of(column, every) for column in shown]
    heads = zip(shown, widths, strict=True)
    yield "run".ljust(width) + "".join(f"{_GAP}{one.heading:>{wide}}" for one, wide in heads)
    for entry in history.entries:
        for row in rows[entry.run.id]:
            cells = zip(shown, widths, strict=True)
            figures = "".join(f"{_GAP}{cell_of(one, row):>{wide}}" for one, wide in cells)
            yield f"{_label(row, width, page)}{figures}".rstrip()
        yield from _notes(entry, page, tells_errors=len(shown) > 1)


def _fitting(
    history: History, rows: list[RunRow], page: ComparisonStyle
) -> tuple[list[HistoryColumn], int]:
    """As many columns as fit beside the labels, and how wide those may be."""
    longest = max(columns(_INDENT * (not row.is_run) + page.safe(row.label)) for row in rows)
    beside = max(min(longest, _LONGEST_BESIDE), len("run"))
    least = min(beside, _SHORTEST_BESIDE)
    for shown in _choices(history, page):
        taken = sum(len(_GAP) + _width_of(column, rows) for column in shown)
        if taken + least <= page.width:
            return shown, min(longest, page.width - taken)
    return shown, least


def _choices(history: History, page: ComparisonStyle) -> Iterator[list[HistoryColumn]]:
    """What can be spared goes first, then the intervals; one column stays."""
    for intervals in (True, False) if page.width >= _WITH_INTERVALS else (False,):
        every = columns_of(history, intervals=intervals)
        for number in range(len(every), 0, -1):
            yield every[:number]


def _width_of(column: HistoryColumn, rows: list[RunRow]) -> int:
    return max(len(column.heading), *(len(cell_of(column, row)) for row in rows))


def _label(row: RunRow, width: int, page: ComparisonStyle) -> str:
    start = "" if row.is_run else _INDENT
    shown = start + cut_middle(page.safe(row.label), width - len(start), page.ellipsis)
    return shown + " " * (width - columns(shown))


def _notes(entry: HistoryEntry, page: ComparisonStyle, *, tells_errors: bool) -> Iterator[str]:
    """Errors are told even where there is no room for their column."""
    errors = entry.summary.errors
    missing = [] if tells_errors or not errors else [counted(errors, "error")]
    for note in [*missing, *notes(entry, page.safe)]:
        yield from page.wrapped(note, _INDENT * 2)


def _as_html(history: History) -> str:
    # Templates and charts take long to load, and few histories are written as a page.
    from paraval.report.history.history_html import history_page  # noqa: PLC0415 - see above

    return history_page(history)


FORMS: Mapping[str, Callable[[History], str]] = {
    ".json": lambda history: f"{to_json(history_as_dict(history))}\n",
    ".csv": history_csv,
    ".md": history_markdown,
    ".html": _as_html,
}


def check_history_outputs(paths: Sequence[Path]) -> None:
    """RequestError for what could not be written later. No file is changed by asking."""
    for path in paths:
        if path.suffix.lower() not in FORMS:
            known = ", ".join(FORMS)
            raise RequestError(
                f"the ending of '{path}' names no form of a history; known: {known}",
                hint="history.html for people, history.json for programs",
            )
        check_place(path)


def write_history(history: History, paths: Sequence[Path]) -> None:
    for path in paths:
        write_whole(path, FORMS[path.suffix.lower()](history))
