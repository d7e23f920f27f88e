"""The table of a summary: its columns and their cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from paraval.report.summary.breakdown import Groups
from paraval.report.summary.summary import Summary, Tally, VariantSummary
from paraval.text.tables import Column, Medium, Table, TableRow
from paraval.text.words import UNKNOWN, duration, percent, percent_range, variant_label

WITHOUT_MATRIX = "all trials"
RATE_HEADING = "pass rate (95%)"
RATE_OF_CASES = "mean of cases (95%)"
"""Of a pass rate that is not the share of judged trials that passed: some cases have fewer judged
repeats than others."""
SKIPPED = "skipped"
TARGET_COST = "target cost"
"""Heading of the cost of targets, where judges have a cost, too."""


_UNITS = {
    **dict.fromkeys(("passed", SKIPPED), "trials"),
    **dict.fromkeys(("cost", TARGET_COST, "judges", "tokens"), "total"),
    **dict.fromkeys(("median", "p95"), "per trial"),
    "score": "from 0 to 1",
}


def summary_table(
    summary: Summary, out: Medium, *, in_full: bool = True, running: bool = False
) -> Table:
    """A row for each variant, in plan order. There is no total: variants are compared, not mixed.

    Trials without a result are pending while the run is `running`; afterwards they were skipped.
    """
    shown = columns_of(summary, in_full=in_full)
    if running:
        shown = [
            replace(column, heading="pending") if column.heading == SKIPPED else column
            for column in shown
        ]
    rows = [_row(label_of(one), one, shown, out) for one in summary.variants]
    return Table(
        label="variant",
        columns=shown,
        rows=rows,
        most_bytes=14_000,
    )


MOST_TAGS = 2
"""Of more tags, one differs by chance."""
SIDE_BY_SIDE = 48
"""With more characters in the names of the variants, the breakdown by grader or tag is of the whole
run: an 80-column terminal has no room for more."""


def breakdown_tables(summary: Summary, out: Medium, *, in_full: bool = True) -> list[Table]:
    """The pass rate of each grader and of each tag, by variant if there are few; if there is only
    one of them, only `in_full`."""
    tables = []
    for label, groups_of in (("by grader", _by_grader), ("by tag", _by_tag)):
        groups = groups_of(summary)
        if len(groups) > 1 or (groups and in_full):
            is_exploratory = groups_of is _by_tag and len(groups) > MOST_TAGS
            name = f"{label} (exploratory)" if is_exploratory else label
            tables.append(_breakdown(name, summary, groups_of, out))
    return tables


def _is_by_case(summary: Summary) -> bool:
    return any(one.is_by_case for one in (summary, *summary.variants))


def _by_grader(tally: Tally) -> Groups:
    return tally.by_grader


def _by_tag(tally: Tally) -> Groups:
    return tally.by_tag


def _breakdown(
    label: str, summary: Summary, groups_of: Callable[[Tally], Groups], out: Medium
) -> Table:
    groups = groups_of(summary)
    labels = [label_of(one) for one in summary.variants]
    is_few = len(labels) > 1 and sum(len(name) + 2 for name in labels) <= SIDE_BY_SIDE
    columns = [
        Column(heading=out.quote(label_of(one)), cell=partial(_rate_in, groups_of(one)))
        for one in (summary.variants if is_few else ())
    ]
    if not is_few:
        pooled = "of all trials" if _is_by_case(summary) else "pass rate"
        columns.append(Column(heading=pooled, cell=partial(_rate_in, groups)))
        columns.append(Column(heading="passed", cell=partial(_passed_in, groups), is_spare=True))
    if not is_few and summary.is_scored and (groups_of is _by_grader or summary.has_same_graders):
        columns.append(Column(heading="score", cell=partial(_score_in, groups), is_spare=True))
    if any(one.skipped for one in groups.values()):
        columns.append(Column(heading=SKIPPED, cell=lambda name: f"{groups[name].skipped:,}"))
    names = list(groups)
    shown = names[: out.most(20, len(names))]
    return Table(
        label=label,
        columns=columns,
        rows=[
            TableRow(label=out.quote(name), cells=tuple(column.cell(name) for column in columns))
            for name in shown
        ],
        unshown=len(names) - len(shown),
        most_bytes=6_000,
    )


def _rate_in(groups: Groups, name: str) -> str:
    """`72%`, of a tag `72% (58–83%)`."""
    if name not in groups:
        return UNKNOWN
    rate, interval = share(groups[name].pass_rate), groups[name].pass_rate_interval
    return rate if interval is None else f"{rate} ({percent_range(*interval)})"


def _passed_in(groups: Groups, name: str) -> str:
    one = groups[name]
    return f"{one.passed:,}/{one.judged:,}" if one.judged else UNKNOWN


def _score_in(groups: Groups, name: str) -> str:
    score = groups[name].score
    return UNKNOWN if score is None else f"{score:.2f}"


def _row(label: str, tally: Tally, shown: list[Column[Tally]], out: Medium) -> TableRow:
    return TableRow(label=out.quote(label), cells=tuple(column.cell(tally) for column in shown))


def columns_of(summary: Summary, *, in_full: bool = True) -> list[Column[Tally]]:
    """The columns that are relevant to this run; `in_full`: also p95 and tokens.

    A narrow page drops spare columns from the right, and then intervals.
    """
    spare = (
        Column(heading=heading, cell=cell, is_spare=True, unit=_UNITS.get(heading, ""))
        for heading, cell in _figures_of(summary, in_full=in_full)
    )
    is_by_case = _is_by_case(summary)
    return [
        Column(
            heading=RATE_OF_CASES if is_by_case else RATE_HEADING,
            unit="each case counts the same" if is_by_case else "of judged trials",
            narrow="rate",
            cell=rate_with_interval,
        ),
        *spare,
        Column(
            heading="errors", cell=lambda tally: f"{tally.errors:,}", style="yellow", unit="trials"
        ),
    ]


def _figures_of(summary: Summary, *, in_full: bool) -> Iterator[tuple[str, Callable[[Tally], str]]]:
    """Headings and cells of spare columns, the least important last."""
    yield "passed", passed_of_judged
    if summary.target.is_told:
        heading = TARGET_COST if summary.judging.is_paid else "cost"
        yield heading, lambda tally: str(tally.target)
    yield "median", lambda tally: taken(tally.median_s, tally)
    if summary.is_scored and summary.has_same_graders:
        yield "score", mean_score
    if summary.skipped:
        yield SKIPPED, lambda tally: f"{tally.skipped:,}"
    if in_full:
        yield "p95", lambda tally: taken(tally.p95_s, tally)
    if summary.judging.is_told:
        yield "judges", lambda tally: str(tally.judging)
    if in_full and summary.tokens is not None:
        yield "tokens", lambda tally: _short(tally.tokens)
    if summary.calls_a_trial is not None:
        yield "calls/trial", _calls_a_trial


def label_of(one: VariantSummary) -> str:
    """The name of a variant in tables and lists."""
    return variant_label(one.variant) or WITHOUT_MATRIX


def share(rate: float | None) -> str:
    return UNKNOWN if rate is None else percent(rate)


def passed_of_judged(tally: Tally) -> str:
    return f"{tally.passed:,}/{tally.judged:,}" if tally.judged else UNKNOWN


def rate_with_interval(tally: Tally) -> str:
    """`63.2% (41–81%)`; an interval without a width is left out."""
    interval = tally.pass_rate_interval
    bounds = "" if interval is None else percent_range(*interval)
    return share(tally.pass_rate) + (f" ({bounds})" if "–" in bounds else "")


def rates_with_errors(tally: Tally) -> str:
    """The worst and best rate that errors could hide; unknown if there are no errors."""
    worst, best = tally.rate_if_errors_failed, tally.rate_if_errors_passed
    if not tally.errors or worst is None or best is None:
        return UNKNOWN
    return percent_range(worst, best)


def taken(seconds: float | None, tally: Tally) -> str:
    """`1.2 s`; `1.2 s+` if it excludes timeouts, which would make it longer."""
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
