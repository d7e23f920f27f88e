"""The table of a history: one row per run, with notes beside its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from paraval.dataclass import dataclass
from paraval.report.compare.sentences import signed_points, signed_range
from paraval.report.contents import choice_text, early_stops
from paraval.report.history.history import Completeness, History, HistoryEntry, Shift
from paraval.report.page.plots import TrendPoint
from paraval.report.summary.columns import RATE_HEADING, label_of, rate_with_interval, taken
from paraval.report.summary.costs import NO_PRICE
from paraval.report.summary.summary import Tally, VariantSummary
from paraval.text.document import Markdown, Paragraph, TextDocument, render
from paraval.text.tables import Column, Medium, Table, TableRow
from paraval.text.words import UNKNOWN, counted, duration, listed, money, percent, variant_label

# Notes beside a run's figures: how it ended, what changed, what got better or worse. Names are
# untrusted: the caller passes the function that quotes them.

Quote = Callable[[str], str]

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
    """`small: worse than the run before (-12 points, 95%: -20 to -4)`."""
    of = "" if shift.variant is None else f"{quote(variant_label(shift.variant))}: "
    better = "better" if shift.difference > 0 else "worse"
    since = "the run before" if shift.is_since_last else f"run {shift.since}"
    sure = f"{percent(shift.confidence)}{' at any time' if shift.at_any_time else ''}"
    told = f"{signed_points(shift.difference)}, {sure}: {signed_range(shift.interval)}"
    return f"{of}{better} than {since} ({told}, {counted(shift.cases, 'case')})"


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
                usd=_usd_a_trial(one),
                seconds=one.median_s,
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


def _usd_a_trial(one: VariantSummary) -> float | None:
    """Only if all of it is known."""
    costs = one.target
    is_known = costs.usd is not None and costs.priced > 0 and not costs.unpriced
    return (costs.usd or 0.0) / costs.priced if is_known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """A run, or a variant of one."""

    label: str
    entry: HistoryEntry
    tally: Tally
    is_run: bool


def rows_of(entry: HistoryEntry) -> Iterator[HistoryRow]:
    """A run with one variant needs only its own row."""
    yield HistoryRow(label=entry.run.id, entry=entry, tally=entry.summary, is_run=True)
    if len(entry.summary.variants) > 1:
        for one in entry.summary.variants:
            yield HistoryRow(label=label_of(one), entry=entry, tally=one, is_run=False)


def columns_of(history: History) -> list[Column[HistoryRow]]:
    """The least important come last; a narrow page drops them."""
    has_cost = any(entry.summary.total_cost_usd is not None for entry in history.entries)
    spare: list[tuple[str, Callable[[HistoryRow], str]]] = [
        ("trials", _trials),
        *([("cost", cost)] if has_cost else []),
        ("median", lambda row: taken(row.tally.median_s, row.tally)),
        # Neither applies to a variant.
        ("took", lambda row: duration(row.entry.run.wall_s) if row.is_run else ""),
        ("began (UTC)", lambda row: began(row.entry) if row.is_run else ""),
    ]
    return [
        Column(heading=RATE_HEADING, narrow="rate", cell=_rate),
        Column(heading="errors", cell=lambda row: f"{row.tally.errors:,}"),
        *(Column(heading=heading, cell=cell, is_spare=True) for heading, cell in spare),
    ]


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
    shown = columns_of(history)
    rows = [
        TableRow(
            label=out.quote(row.label),
            cells=tuple(column.cell(row) for column in shown),
            below=tuple(notes(row.entry, out.quote)) if row.is_run else (),
            is_part=not row.is_run,
            strong=row.is_run,
        )
        for entry in history.entries
        for row in rows_of(entry)
    ]
    return Table(
        label="run",
        columns=shown,
        rows=rows,
        noun="older run",
        hint=" not shown.",
        keeps_last=True,
        most_bytes=50_000,
    )


def began(entry: HistoryEntry) -> str:
    """`2026-01-31 12:00`."""
    return f"{datetime.fromtimestamp(entry.run.started_at, UTC):%Y-%m-%d %H:%M}"


def cost(row: HistoryRow) -> str:
    """Judges included; `$0.12+` if some of it is unknown."""
    tally = row.tally
    unknown = tally.target.is_partly_unknown or tally.judging.is_partly_unknown
    if tally.total_cost_usd is None:
        return NO_PRICE if unknown else UNKNOWN
    return money(tally.total_cost_usd) + "+" * unknown


def _rate(row: HistoryRow) -> str:
    is_partial = row.entry.is_partial and row.tally.pass_rate is not None
    return f"{PARTIAL_SIGN if is_partial else ''}{rate_with_interval(row.tally)}"


def _trials(row: HistoryRow) -> str:
    """Finished trials out of the planned ones, if some are not finished."""
    run, tally = row.entry.run, row.tally
    early = early_stops(tally)
    if row.is_run and row.entry.is_partial and run.done < run.trials:
        return f"{run.done - early:,}/{run.trials:,}"
    # A test that skips itself is finished; a trial that an early stop skipped never began.
    ended = tally.trials - tally.skipped + tally.left_out - early
    return f"{tally.trials:,}" if ended == tally.trials else f"{ended:,}/{tally.trials:,}"
