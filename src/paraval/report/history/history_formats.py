"""A history as a table with notes, as points to draw, and as files: CSV, JSON, Markdown, HTML."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paraval.codec import Style, scalar_shown, to_data
from paraval.records import Variant
from paraval.report.compare.claims import Quote, claim_of
from paraval.report.contents import choice_text, early_stops
from paraval.report.files import check_endings, write_whole
from paraval.report.formats.csv import Cell, axis_cell, inert
from paraval.report.formats.json import comparison_as_dict, moment, to_json
from paraval.report.formats.trial_rows import axes_in
from paraval.report.history.history import Completeness, History, HistoryEntry, Shift
from paraval.report.page.plots import TrendPoint
from paraval.report.summary.costs import seconds
from paraval.report.summary.figures import figures_of, label_of
from paraval.report.summary.tally import Tally, VariantSummary
from paraval.text.document import Markdown, Paragraph, TextDocument, render
from paraval.text.tables import Column, Medium, Table, TableRow
from paraval.text.terminal import well_formed
from paraval.text.words import counted, duration, listed, variant_label

# Notes beside a run's figures: how it ended, what changed, what got better or worse. Names are
# untrusted: the caller passes the function that quotes them.

PARTIAL_SIGN = "~"
"""Before a rate that does not cover everything planned."""
PARTIAL_LEGEND = (
    f"{PARTIAL_SIGN} partial: covers only the trials that had ended, which may be the easy ones."
)
_HOW = {
    Completeness.RUNNING: "still running",
    Completeness.HELD_BACK: "trials pending",
    Completeness.INTERRUPTED: "interrupted",
}


def heading(history: History, quote: Quote) -> str:
    """`greetings (model=small): 5 runs`."""
    chosen = f" ({quote(choice_text(history.choice))})" if history.choice else ""
    return f"{quote(history.suite)}{chosen}: {counted(len(history.entries), 'run')}"


def notes(entry: HistoryEntry, quote: Quote) -> list[str]:
    return [*_ending(entry), *_extent(entry, quote), *_changes(entry), *_shifts(entry, quote)]


def left_out(history: History, quote: Quote) -> list[str]:
    """What is not shown, in sentences."""
    sentences = []
    if history.older:
        sentences.append(f"{counted(history.older, 'older run')} not shown; use --limit N.")
    if history.unfitting:
        chosen = quote(choice_text(history.choice))
        has = "has" if history.unfitting == 1 else "have"
        sentences.append(f"{counted(history.unfitting, 'run')} {has} no trial with {chosen}.")
    return sentences


def shift_words(shift: Shift, quote: Quote) -> str:
    """`small: now passes 12 points less than run 20260130-120000-abcd (95% CI ...): worse`."""
    of = "" if shift.variant is None else f"{quote(variant_label(shift.variant))}: "
    return f"{of}{claim_of(shift.comparison, str).sentence}"


def _ending(entry: HistoryEntry) -> Iterator[str]:
    run, summary = entry.run, entry.summary
    if run.regraded_from is not None:
        yield f"regraded from {run.regraded_from}"
    if entry.is_partial:
        yield f"{_HOW[entry.standing]}, {run.done:,} of {counted(run.trials, 'trial')}: partial"
    if not entry.has_verdicts:
        kinds = listed(f"{number:,} {kind}" for kind, number in summary.errors_by_kind.items())
        yield f"nothing was judged{f': {kinds}' if kinds else ''}"
    early = early_stops(summary)
    if early:
        yield f"stopped early: {counted(early, 'trial')} not run"


def _extent(entry: HistoryEntry, quote: Quote) -> Iterator[str]:
    suite_cases = entry.suite_cases
    if suite_cases is not None and entry.cases < suite_cases:
        yield f"{entry.cases:,} of {counted(suite_cases, 'case')}"
    if entry.chosen_variants:
        number, whole = len(entry.summary.variants), entry.suite_variants
        # Models outside the matrix can be selected too: then it is not a share of the suite.
        is_share = whole is not None and number < whole
        extent = f"{number:,} of {whole:,} variants" if is_share else "selected variants only"
        yield f"{extent} ({quote(entry.chosen_variants)})"


def _changes(entry: HistoryEntry) -> Iterator[str]:
    if entry.changes:
        yield "; ".join(change.words for change in entry.changes)


def _shifts(entry: HistoryEntry, quote: Quote) -> Iterator[str]:
    return (shift_words(shift, quote) for shift in entry.shifts)


# A history as points to draw: only complete runs over the same cases, since a rate over some of the
# cases looks like any other.


def points_of(entries: Sequence[HistoryEntry]) -> Iterator[TrendPoint]:
    """Changes in a run that is not drawn are shown with the next one that is."""
    drawn = {entry.run.id for entry in drawn_of(entries)}
    changed: dict[str, None] = {}
    for entry in entries:
        changed.update(dict.fromkeys(change.part for change in entry.changes))
        if entry.run.id not in drawn:
            continue
        for one in entry.summary.variants:
            yield TrendPoint(
                run=entry.run.id,
                series=label_of(one),
                rate=one.pass_rate,
                interval=one.pass_rate_interval,
                changed=tuple(changed),
            )
        changed = {}


def drawn_of(entries: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """Complete runs of all cases, if the last was one; else those of as many as the last."""
    complete = [entry for entry in entries if not entry.is_partial]
    return [entry for entry in complete if _drawn_extent(entry) == _drawn_extent(complete[-1])]


def _drawn_extent(entry: HistoryEntry) -> int | None:
    """Number of selected cases; None: all."""
    whole = entry.suite_cases
    return entry.cases if whole is not None and entry.cases < whole else None


def closing_of(history: History, quote: Quote) -> list[str]:
    """Closing sentences."""
    partial = [PARTIAL_LEGEND] if any(entry.is_partial for entry in history.entries) else []
    return [*partial, *left_out(history, quote)]


def history_markdown(history: History) -> str:
    return history_text(history, Markdown())


def history_text(history: History, out: Medium) -> str:
    head = heading(history, out.quote)
    document = TextDocument(
        title=f"paraval: {head}",
        sections=[
            [Paragraph(head)] if out.is_terminal else [],
            [history_table(history, out)],
            [Paragraph(sentence) for sentence in closing_of(history, out.quote)],
        ],
    )
    return render(document, out)


def history_table(history: History, out: Medium) -> Table:
    """A row for each run; below it, one for each of its variants if there are several."""
    summaries = [entry.summary for entry in history.entries]
    has_scores = all(one.has_same_graders for one in summaries)
    figures = figures_of(summaries, in_full=False, has_scores=has_scores)
    own = [
        Column[Tally](heading=name, cell=_nothing, is_spare=True)
        for name in ("took", "began (UTC)")
    ]
    rows = []
    for entry in history.entries:
        partial = PARTIAL_SIGN * (entry.is_partial and entry.summary.pass_rate is not None)
        began = f"{datetime.fromtimestamp(entry.run.started_at, UTC):%Y-%m-%d %H:%M}"
        first, *cells = (column.cell(entry.summary) for column in figures)
        rows.append(
            TableRow(
                label=out.quote(entry.run.id),
                cells=(partial + first, *cells, duration(entry.run.wall_s), began),
                below=tuple(notes(entry, out.quote)),
                strong=True,
            )
        )
        variants = entry.summary.variants
        for one in variants if len(variants) > 1 else ():
            first, *cells = (column.cell(one) for column in figures)
            sign = PARTIAL_SIGN * (entry.is_partial and one.pass_rate is not None)
            label = out.quote(label_of(one))
            rows.append(TableRow(label=label, cells=(sign + first, *cells, "", ""), is_part=True))
    return Table(
        label="run",
        columns=[*figures, *own],
        rows=rows,
        noun="older run",
        hint=" not shown.",
        keeps_last=True,
        most_bytes=50_000,
    )


def _nothing(_: Tally) -> str:
    """Neither is a figure of a variant."""
    return ""


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


_KEYS = (
    *("trials", "passed", "failed", "errors", "skipped", "cases", "pass_rate"),
    *("cost_usd", "total_cost_usd", "trials_of_unknown_cost", "median_s"),
)
"""As in JSON; the interval has two columns."""


def _figures(tally: Tally) -> dict[str, Cell]:
    data = to_data(tally, Style.SHOWN)
    low, high = data["pass_rate_interval"] or (None, None)
    told = {key: data[key] for key in _KEYS}
    return {**told, "pass_rate_low": low, "pass_rate_high": high}


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
        "suite_changes": [change.words for change in entry.changes],
        "compared_with": entry.compared_with,
        "shifts": [_shift(shift) for shift in entry.shifts],
    }


def _shift(shift: Shift) -> dict[str, Any]:
    return {
        "variant": None if shift.variant is None else variant_as_dict(shift.variant),
        "since": shift.since,
        "comparison": comparison_as_dict(shift.comparison),
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
