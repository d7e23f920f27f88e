"""A history as files and on the terminal: CSV, JSON, Markdown, HTML."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paraval.codec import Style, finite, scalar_shown, to_data
from paraval.records import Variant
from paraval.report.files import check_endings, write_whole
from paraval.report.formats.csv import Cell, axis_cell, inert
from paraval.report.formats.json import moment, to_json
from paraval.report.formats.trial_rows import axes_in
from paraval.report.history.history import History, HistoryEntry, Shift
from paraval.report.history.history_table import (
    closing_of,
    drawn_of,
    heading,
    history_markdown,
    history_table,
    notes,
    points_of,
    shift_words,
)
from paraval.report.summary.costs import seconds
from paraval.report.summary.tally import Tally, VariantSummary
from paraval.text.terminal import well_formed
from paraval.text.words import counted

# CSV for spreadsheets: one row per run and variant, one column per axis, and no cell that is
# executed.


def history_csv(history: History) -> str:
    """Of at least one run."""
    axes = axes_in(one.variant for entry in history.entries for one in entry.summary.variants)
    rows = [row for entry in history.entries for row in _rows(entry, axes)]
    page = io.StringIO()
    table = csv.DictWriter(page, list(rows[0]), quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return page.getvalue()


def _rows(entry: HistoryEntry, axes: list[str]) -> Iterator[dict[str, Cell]]:
    """A run without any result has a row, too."""
    run = entry.run
    for tally in entry.summary.variants or (entry.summary,):
        variant = tally.variant if isinstance(tally, VariantSummary) else dict.fromkeys(axes, "")
        yield {
            "run": inert(run.id),
            "started_at": moment(run.started_at),
            "state": entry.standing.value,
            "planned": run.trials,
            "done": run.done,
            "wall_s": seconds(run.wall_s),
            **{inert(f"variant.{axis}"): axis_cell(variant.get(axis)) for axis in axes},
            **_figures(tally),
            "changed": inert("; ".join(change.words for change in entry.changes)),
            "notes": inert("; ".join(notes(entry, str))),
        }


_KEYS = ("trials", "passed", "failed", "errors", "skipped", "cases", "pass_rate")


def _figures(tally: Tally) -> dict[str, Cell]:
    low, high = tally.pass_rate_interval or (None, None)
    return {
        **{key: getattr(tally, key) for key in _KEYS},
        "pass_rate_low": low,
        "pass_rate_high": high,
        "cost_usd": finite(tally.total_cost_usd),
        "cost_unknown": tally.total_cost.endswith(("+", "unknown")),
        "median_s": seconds(tally.median_s),
    }


# JSON for programs: `paraval history --json`, and `-o history.json`.

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
        **to_data(entry.summary, Style.SHOWN),
        "parts": _texts(run.parts),
        "changed": [change.part for change in entry.changes],
        "changes": [change.words for change in entry.changes],
        "compared_with": entry.compared_with,
        "shifts": [_shift(shift) for shift in entry.shifts],
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
    """Axis values name variants: one that JSON cannot write as a number becomes text."""
    return {well_formed(axis): scalar_shown(value) for axis, value in variant.items()}


def _texts(told: Mapping[str, str]) -> dict[str, str]:
    return {well_formed(name): well_formed(text) for name, text in told.items()}


def history_page(history: History) -> str:
    """One self-contained page: no script, no network."""
    # Templates and charts are slow to load, and few histories are written as a page.
    from paraval.report.page.plots import trend  # noqa: PLC0415 - see above
    from paraval.report.page.rendering import HtmlPage, rendered_page  # noqa: PLC0415 - see above

    page, undrawn = HtmlPage(), len(history.entries) - len(drawn_of(history.entries))
    are = "is" if undrawn == 1 else "are"
    note = f"{counted(undrawn, 'run')} {are} not drawn: partial, or with other cases."
    values = {
        "suite": history.suite,
        "heading": heading(history, page.quote),
        "trend": trend(list(points_of(history.entries))),
        "undrawn": note if undrawn else "",
        "table": history_table(history, page),
        "closing": closing_of(history, page.quote),
    }
    return "".join(rendered_page("history.html", **values))


FORMS: Mapping[str, Callable[[History], str]] = {
    ".json": lambda history: f"{to_json(history_as_dict(history))}\n",
    ".csv": history_csv,
    ".md": history_markdown,
    ".html": history_page,
}


def check_history_outputs(paths: Sequence[Path]) -> None:
    """RequestError if the file could not be written later. Changes no file."""
    check_endings(paths, "a history", FORMS, "history.html for people, history.json for programs")


def write_history(history: History, paths: Sequence[Path]) -> None:
    for path in paths:
        write_whole(path, FORMS[path.suffix.lower()](history))
