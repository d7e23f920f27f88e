"""The figures of a set of trials: one list, which every table of them is made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from paraval.report.summary.tally import Groups, Summary, Tally, VariantSummary
from paraval.text.tables import Column, Medium, Table, TableRow
from paraval.text.words import UNKNOWN, duration, percent, percent_range, variant_label

WITHOUT_MATRIX = "all trials"
SKIPPED = "skipped"


def label_of(one: VariantSummary) -> str:
    """The name of a variant in tables and lists."""
    return variant_label(one.variant) or WITHOUT_MATRIX


def share(rate: float | None) -> str:
    return UNKNOWN if rate is None else percent(rate)


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


def _passed(tally: Tally) -> str:
    return f"{tally.passed:,}/{tally.judged:,}" if tally.judged else UNKNOWN


def _number(form: str) -> Callable[[float | None], str]:
    return lambda value: UNKNOWN if value is None else format(value, form)


def _tokens(number: float | None) -> str:
    """`9,500`, `120 k`, `1.2 M`."""
    if number is None:
        return UNKNOWN
    if number < 9_999.5:
        return f"{number:,.0f}"
    if number < 999_500:
        return f"{number / 1e3:,.0f} k"
    return f"{number / 1e6:,.{1 if number < 99.95e6 else 0}f} M"


class Figure(NamedTuple):
    """A figure of a tally: its heading, how it is shown, and when."""

    heading: str
    cell: Callable[[Tally], str]
    unit: str = ""
    """What it counts, below the heading of a page."""
    is_told: Callable[[Tally], bool] = lambda _: True
    """Whether a tally has it: a table has it if one of its tallies does."""
    is_detail: bool = False
    """Whether it is only in full tables."""


_PASS_RATE = Figure("pass rate (95%)", rate_with_interval, "of judged trials")
_RATE_OF_CASES = Figure("mean of cases (95%)", rate_with_interval, "each case counts the same")
"""Of a pass rate that is not the share of judged trials that passed: some cases have fewer judged
repeats than others."""
_ERRORS = Figure("errors", lambda one: f"{one.errors:,}", "trials")
_COST = Figure("cost", lambda one: one.cost, "total", lambda one: one.is_told)
_TARGET_COST = Figure("target cost", lambda one: one.cost, "total", lambda one: one.is_told)
"""Where judges have a cost, too."""
SPARE = (
    Figure("passed", _passed, "trials"),
    Figure("median", lambda one: taken(one.median_s, one), "per trial"),
    Figure(
        "score", lambda one: _number(".2f")(one.score), "from 0 to 1", lambda one: one.is_scored
    ),
    Figure(SKIPPED, lambda one: f"{one.skipped:,}", "trials", lambda one: one.skipped > 0),
    Figure("p95", lambda one: taken(one.p95_s, one), "per trial", is_detail=True),
    Figure("judges", lambda one: one.judging.cost, "total", lambda one: one.judging.is_told),
    Figure(
        "tokens",
        lambda one: _tokens(one.tokens),
        "total",
        lambda one: one.tokens is not None,
        is_detail=True,
    ),
    Figure(
        "calls/trial",
        lambda one: _number(",.1f")(one.calls_a_trial),
        is_told=lambda one: one.calls_a_trial is not None,
    ),
    Figure("cases", lambda one: f"{one.cases:,}", "with a verdict", is_detail=True),
    Figure(
        "with errors",
        rates_with_errors,
        "failed or passed",
        lambda one: one.errors > 0,
        is_detail=True,
    ),
)
"""The least important last: a narrow page drops them from the right. The cost comes second."""


def figures_of(
    tallies: Sequence[Tally], *, in_full: bool = True, has_scores: bool = True
) -> list[Column[Tally]]:
    """The columns of a table of these: the pass rate, and last the errors."""
    is_by_case = any(one.is_by_case for one in tallies)
    cost = _TARGET_COST if any(one.judging.is_paid for one in tallies) else _COST
    passed, *others = SPARE
    spare = [
        Column(heading=one.heading, cell=one.cell, unit=one.unit, is_spare=True)
        for one in (passed, cost, *others)
        if (in_full or not one.is_detail)
        and any(map(one.is_told, tallies))
        and (has_scores or one.heading != "score")
    ]
    rate = _RATE_OF_CASES if is_by_case else _PASS_RATE
    return [
        Column(heading=rate.heading, narrow="rate", cell=rate.cell, unit=rate.unit),
        *spare,
        Column(heading=_ERRORS.heading, cell=_ERRORS.cell, unit=_ERRORS.unit, style="yellow"),
    ]


def figures_table(
    label: str, rows: Iterable[tuple[str, Tally]], shown: Sequence[Column[Tally]]
) -> Table:
    """A row for each tally; labels are quoted."""
    return Table(
        label=label,
        columns=shown,
        rows=[
            TableRow(label=name, cells=tuple(column.cell(one) for column in shown))
            for name, one in rows
        ],
        most_bytes=14_000,
    )


def summary_table(
    summary: Summary, out: Medium, *, in_full: bool = True, running: bool = False
) -> Table:
    """A row for each variant, in plan order. There is no total: variants are compared, not mixed.

    Trials without a result are pending while the run is `running`; afterwards they were skipped.
    """
    every = (summary, *summary.variants)
    shown = figures_of(every, in_full=in_full, has_scores=summary.has_same_graders)
    if running:
        shown = [
            replace(one, heading="pending") if one.heading == SKIPPED else one for one in shown
        ]
    variants = summary.variants
    return figures_table("variant", ((out.quote(label_of(one)), one) for one in variants), shown)


# ---- pass rates by grader and by tag

MOST_TAGS = 2
"""Of more tags, one differs by chance."""
SIDE_BY_SIDE = 48
"""With more characters in the names of the variants, the breakdown by grader or tag is of the whole
run: an 80-column terminal has no room for more."""


def breakdown_tables(summary: Summary, out: Medium, *, in_full: bool = True) -> list[Table]:
    """The pass rate of each grader and of each tag, by variant if there are few; if there is only
    one of them, only `in_full`."""
    tables = []
    if len(graders := summary.by_grader) > 1 or (graders and in_full):
        tables.append(_breakdown("by grader", summary, lambda one: one.by_grader, out))
    if len(tags := summary.by_tag) > 1 or (tags and in_full):
        name = "by tag (exploratory)" if len(tags) > MOST_TAGS else "by tag"
        tables.append(_breakdown(name, summary, lambda one: one.by_tag, out))
    return tables


def _breakdown(
    label: str, summary: Summary, groups_of: Callable[[Tally], Groups], out: Medium
) -> Table:
    groups, variants = groups_of(summary), summary.variants
    is_few = len(variants) > 1 and sum(len(label_of(one)) + 2 for one in variants) <= SIDE_BY_SIDE
    columns: list[Column[str]] = [
        Column(heading=out.quote(label_of(one)), cell=partial(_rate_in, groups_of(one)))
        for one in (variants if is_few else ())
    ]
    if not is_few:
        is_by_case = any(one.is_by_case for one in (summary, *variants))
        pooled = "of all trials" if is_by_case else "pass rate"
        columns.append(Column(heading=pooled, cell=partial(_rate_in, groups)))
        columns.append(
            Column(heading="passed", cell=partial(_passed_in, groups), unit="trials", is_spare=True)
        )
        if summary.is_scored and (groups is summary.by_grader or summary.has_same_graders):
            score = _number(".2f")
            columns.append(
                Column(heading="score", cell=lambda name: score(groups[name].score), is_spare=True)
            )
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
