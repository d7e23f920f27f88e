"""The table of a summary: which columns it has and what stands in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from paraval.report.summary.summary import Summary, Tally, VariantSummary
from paraval.text.tables import Column, Medium, Table, TableRow
from paraval.text.words import UNKNOWN, duration, percent, percent_range, variant_label

TOTAL = "total"
WITHOUT_MATRIX = "all trials"
RATE_HEADING = "pass rate (95%)"
_STYLES = {"passed": "green", "failed": "red"}


def summary_table(summary: Summary, out: Medium) -> Table:
    """A row a variant, in plan order, and the total where there are several."""
    shown = columns_of(summary)
    rows = [_row(label_of(one), one, shown, out) for one in summary.variants]
    return Table(
        label="variant",
        columns=shown,
        rows=rows,
        total=_row(TOTAL, summary, shown, out) if len(rows) > 1 else None,
        most_bytes=14_000,
    )


def _row(label: str, tally: Tally, shown: list[Column[Tally]], out: Medium) -> TableRow:
    return TableRow(label=out.quote(label), cells=tuple(column.cell(tally) for column in shown))


def columns_of(summary: Summary) -> list[Column[Tally]]:
    """The columns that say something about this run.

    What a reader wants first stands first: a narrow page does without the last ones, and without
    intervals only after all that can be spared.
    """
    columns = [
        Column(heading=RATE_HEADING, narrow="rate", cell=rate_with_interval),
        Column(heading="errors", cell=lambda tally: f"{tally.errors:,}", style="yellow"),
    ]
    if summary.errors:
        columns.append(Column(heading="could be", cell=rates_with_errors))
    spare = (
        Column(heading=heading, cell=cell, is_spare=True, style=_STYLES.get(heading, ""))
        for heading, cell in _figures_of(summary)
    )
    return [*columns, *spare]


def _figures_of(summary: Summary) -> Iterator[tuple[str, Callable[[Tally], str]]]:
    """Headings and cells beside the rate, those that are missed least last."""
    if summary.target.is_told:
        yield "cost", lambda tally: str(tally.target)
    yield "median", lambda tally: taken(tally.median_s, tally)
    if summary.is_scored:
        yield "score", mean_score
    yield "passed", lambda tally: f"{tally.passed:,}"
    yield "failed", lambda tally: f"{tally.failed:,}"
    if summary.skipped:
        yield "skipped", lambda tally: f"{tally.skipped:,}"
    yield "p95", lambda tally: taken(tally.p95_s, tally)
    if summary.judging.is_told:
        yield "judges", lambda tally: str(tally.judging)
    if summary.tokens is not None:
        yield "tokens", lambda tally: _short(tally.tokens)
    if summary.calls_a_trial is not None:
        yield "calls a trial", _calls_a_trial


def label_of(one: VariantSummary) -> str:
    """What a variant is called beside its figures."""
    return variant_label(one.variant) or WITHOUT_MATRIX


def share(rate: float | None) -> str:
    return UNKNOWN if rate is None else percent(rate)


def rate_with_interval(tally: Tally) -> str:
    interval = tally.pass_rate_interval
    beside = "" if interval is None else f" ({percent_range(*interval)})"
    return share(tally.pass_rate) + beside


def rates_with_errors(tally: Tally) -> str:
    """The worst and the best rate that errors hide; nothing where there are none."""
    worst, best = tally.rate_if_errors_failed, tally.rate_if_errors_passed
    if not tally.errors or worst is None or best is None:
        return UNKNOWN
    return percent_range(worst, best)


def taken(seconds: float | None, tally: Tally) -> str:
    """`1.2 s`; `1.2 s+` where timeouts are not counted, which would make it longer."""
    return UNKNOWN if seconds is None else duration(seconds) + "+" * bool(tally.timeouts)


def mean_score(tally: Tally) -> str:
    return UNKNOWN if tally.score is None else f"{tally.score:.2f}"


def _calls_a_trial(tally: Tally) -> str:
    return UNKNOWN if tally.calls_a_trial is None else f"{tally.calls_a_trial:,.1f}"


def _short(number: float | None) -> str:
    """`9,500`, `120 k`, `1.2 M`."""
    if number is None:
        return UNKNOWN
    if number < 9_999.5:
        return f"{number:,.0f}"
    if number < 999_500:
        return f"{number / 1e3:,.0f} k"
    millions = number / 1e6
    return f"{millions:,.1f} M" if millions < 99.95 else f"{millions:,.0f} M"
