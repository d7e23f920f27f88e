"""The table of a history: one row per run, with notes beside its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from paraval.report.compare.claims import signed_points, signed_range
from paraval.report.contents import choice_text, early_stops
from paraval.report.history.history import Completeness, History, HistoryEntry, Shift
from paraval.report.page.plots import TrendPoint
from paraval.report.summary.figures import figures_of, label_of
from paraval.report.summary.tally import Tally, VariantSummary
from paraval.text.document import Markdown, Paragraph, TextDocument, render
from paraval.text.tables import Column, Medium, Table, TableRow
from paraval.text.words import counted, duration, listed, percent, variant_label

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
    is_known = one.cost_usd is not None and one.priced > 0 and not one.is_partly_unknown
    return (one.cost_usd or 0.0) / one.priced if is_known else None


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
    figures = figures_of([entry.summary for entry in history.entries], in_full=False)
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
