"""The page of a run from top to bottom, in reading order.

First the verdict, then the figures, then every case. Cases are written one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TextIO

from markupsafe import Markup

from paraval.dataclass import dataclass
from paraval.errors import ParavalError
from paraval.records import Outcome, RunInfo
from paraval.report.compare.comparison import Comparison, Method
from paraval.report.compare.outline import ChangedCase, ChangedCases, story_of
from paraval.report.compare.sentences import signed_range
from paraval.report.compare.two_runs import (
    ComparisonQuestion,
    ComparisonSide,
    SideComparison,
    first_ended,
)
from paraval.report.contents import Contents
from paraval.report.gate import DropVerdict, RegressionVerdict
from paraval.report.history.history import EarlierRuns
from paraval.report.history.history_table import points_of
from paraval.report.page.answers import (
    IN_PLAIN_SIGHT,
    ComparisonAnswer,
    TurnedList,
    answer_of,
    answers_of,
    axis_of,
    named,
    plotted,
    shared_reach,
    turned_lists,
    variant_answer,
)
from paraval.report.page.artifacts import LARGEST_PAGE, PageBudget
from paraval.report.page.cases import CaseWriter, filters_of
from paraval.report.page.charts.data import TrendPoint
from paraval.report.page.charts.heat import heat_map
from paraval.report.page.charts.over_time import over_time
from paraval.report.page.charts.scatter import quality_cost
from paraval.report.page.charts.trend import trend
from paraval.report.page.figures import (
    MOST_LISTED,
    PageFigures,
    UnpassedTrial,
    case_anchor,
    figures_of,
)
from paraval.report.page.heading import MOST_TILES, heading_of, rate_of, tiles_of
from paraval.report.page.rendering import HtmlPage, policy, rendered, rendered_in_pieces, style
from paraval.report.page.trials import SIGNS
from paraval.report.reasons import reason
from paraval.report.report_file import ReportFile
from paraval.report.summary.closing import (
    Section,
    closing_sentences,
    deed_sections,
    errors_heading,
    held_back,
    wrong_heading,
)
from paraval.report.summary.columns import (
    RATE_HEADING,
    RATE_OF_CASES,
    TARGET_COST,
    breakdown_tables,
    summary_table,
)
from paraval.report.summary.summary import Summary
from paraval.text.tables import Table
from paraval.text.terminal import one_line
from paraval.text.words import variant_label

# The charts of a page, each with its heading; empty ones are left out.


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing under a heading."""

    anchor: str
    heading: str
    drawing: Markup
    is_wide: bool = False


def charts_of(run: RunInfo, figures: PageFigures, past: Sequence[TrendPoint]) -> Iterator[Chart]:
    """`past`: the suite's earlier runs."""
    drawn = (
        Chart(
            anchor="cost",
            heading="Quality against cost",
            drawing=quality_cost(figures.quality_cost),
        ),
        Chart(
            anchor="over-time",
            heading="How many ran over time",
            drawing=over_time(figures.times, [f"{one}." for one in held_back(run)]),
        ),
        Chart(anchor="history", heading="History", drawing=trend(past), is_wide=True),
    )
    return (chart for chart in drawn if chart.drawing)


# The suite's earlier runs that a page draws: complete ones, and this one last.


def past_of(contents: Contents) -> list[TrendPoint]:
    """Empty if there is no earlier run: a single point is no history."""
    past = EarlierRuns(tells_shifts=False)
    try:
        earlier = list(past.entries(contents.earlier()))
    except ParavalError:
        # The page is about this run: if the store cannot list the others, it does without them.
        return []
    if not earlier:
        return []
    return list(points_of([*earlier, past.add(contents, contents.run)]))


# A run beside its baseline: the difference, and which cases changed. The gate's verdict on the drop
# is above it.

_NOW, _BEFORE = "this run", "the baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineSection:
    """The comparison with the baseline."""

    answers: tuple[ComparisonAnswer, ...]
    """The overall difference, and each variant's if there are few."""
    axis: Markup | None
    lines: tuple[str, ...]
    """Details of the answer, one sentence or figure each."""
    lists: tuple[TurnedList, ...]
    linked_cases: frozenset[str]
    """By the anchors of their sections."""


def against_of(contents: Contents) -> BaselineSection | None:
    """None if the run has no baseline, or the gate could not use it."""
    drop, regressions, reference = (
        contents.gate.baseline,
        contents.gate.regressions,
        contents.reference,
    )
    judged = drop or regressions
    if judged is None or reference is None:
        return None
    source = reference.source
    now = ComparisonSide(label=_NOW, name=contents.run.id, contents=contents)
    before = ComparisonSide(
        label=_BEFORE,
        name=judged.baseline,
        contents=reference,
        tells_run=not isinstance(source, ReportFile) or source.tells_run,
    )
    try:
        versus = SideComparison(now, before, ComparisonQuestion())
        story = story_of(versus, named, most=MOST_LISTED, drop=None)
    except ParavalError:
        # No variant in common, or a deleted file: the gate's sentence explains it.
        return None
    lists = list(story.lists)
    if regressions is not None:
        # What the gate counts, and not what failed once.
        own = [_regressed(contents, regressions)] if regressions.regressed else []
        lists = [*own, *(it for it in lists if it.kind != "broke")]
    anchors = _anchors(contents, lists)
    elsewhere = f"paraval compare {named(judged.baseline)} {contents.run.id} --all"
    answers, reach = _answers(versus)
    return BaselineSection(
        answers=tuple(answers),
        axis=axis_of(answers, reach),
        lines=(
            *(() if drop is None else _gate_interval(versus.comparison, drop)),
            f"baseline: {story.reference}",
            *story.figures,
            *story.notices,
        ),
        lists=tuple(turned_lists(lists, anchors, elsewhere)),
        linked_cases=frozenset(anchors.values()),
    )


def _answers(versus: SideComparison) -> tuple[list[ComparisonAnswer], float]:
    """With their plots, and the reach of these."""
    by_variant = versus.by_variant if len(versus.by_variant) <= IN_PLAIN_SIGHT else ()
    whole = replace(answer_of(versus.comparison), details=())
    headline = whole.headline[:1].upper() + whole.headline[1:]
    pairs = [
        (replace(whole, headline=headline), versus.comparison),
        *((variant_answer(variant_label(one), found), found) for one, found in by_variant),
    ]
    reach = shared_reach(found for _, found in pairs)
    return plotted(pairs, reach), reach


def _gate_interval(comparison: Comparison, drop: DropVerdict) -> Iterator[str]:
    """Explain why a page shows two intervals for one difference."""
    passing, change = comparison.passing, drop.change
    if passing is None or change is None or passing.method is Method.NONE:
        return
    judged = signed_range(change.interval)
    if judged != signed_range(passing.interval):
        yield (
            f"The gate judges by {judged}: what it rules out must be so also where cases are few,"
            " or verdicts are missing."
        )


def _regressed(contents: Contents, found: RegressionVerdict) -> ChangedCases:
    """All that the gate counts as regressed: with repeats, a case need not fail each of them."""
    names = found.regressed
    failed = first_ended(contents, dict.fromkeys(names, Outcome.FAILED))
    whys = {name: reason(result.result) for name, result in failed.items()}
    return ChangedCases(
        kind="broke",
        heading=f"{len(names):,} regressed: passed in {_BEFORE}, failed in {_NOW}",
        cases=tuple(ChangedCase(name=name, why=whys.get(name, "")) for name in names),
        more=0,
    )


def _anchors(contents: Contents, lists: Sequence[ChangedCases]) -> dict[str, str]:
    """By what the lists call a case: its id, or `case · variant`."""
    listed = {case.name for one in lists for case in one.cases}
    labels = [variant_label(variant) for variant in contents.book.variants.values()]
    return {
        name: case_anchor(number)
        for number, (case, _) in enumerate(contents.book.rows())
        for name in (case, *(f"{case} · {label}" for label in labels))
        if name in listed
    }


# Tables and lists of a page, worded as on the terminal.

_MOST_ROWS = 500
_LONGEST_LABEL = 200
_IN_PLAIN_SIGHT = 20
"""Maximum length of a list: timings and charts follow it."""


UNITS = {
    RATE_HEADING: "of judged trials",
    RATE_OF_CASES: "each case counts the same",
    "errors": "trials",
    "cost": "total",
    TARGET_COST: "total",
    "median": "per trial",
    "score": "from 0 to 1",
    "passed": "trials",
    "failed": "trials",
    "skipped": "trials",
    "pending": "trials",
    "p95": "per trial",
    "judges": "total",
    "tokens": "total",
}
"""What the figures under a heading of the table count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpassedList:
    """Failures or errors."""

    kind: str
    heading: str
    trials: tuple[UnpassedTrial, ...]
    """Those that are visible ..."""
    more: tuple[UnpassedTrial, ...]
    """... those that are folded ..."""
    left_out: int
    """... and how many are left out."""

    @property
    def sign(self) -> str:
        return SIGNS[self.kind]


def table_of(summary: Summary, *, running: bool) -> Table:
    table = summary_table(summary, HtmlPage(), running=running)
    rows = table.rows[:_MOST_ROWS]
    return replace(table, rows=rows, unshown=len(table.rows) - len(rows))


def lists_of(summary: Summary, figures: PageFigures) -> Iterator[UnpassedList]:
    for kind, heading, trials, number in (
        ("wrong", wrong_heading, figures.wrong, summary.failed),
        ("error", errors_heading, figures.errors, summary.errors),
    ):
        if trials:
            left = number - sum(one.times for one in trials)
            yield UnpassedList(
                kind=kind,
                heading=heading(summary),
                trials=trials[:_IN_PLAIN_SIGHT],
                more=trials[_IN_PLAIN_SIGHT:],
                left_out=left,
            )


def nothing_unpassed(summary: Summary) -> str:
    if not summary.judged:
        return "Nothing was judged."
    return "Every judged trial passed, and there were no errors."


def deed_lists(summary: Summary) -> Iterator[tuple[str, Section]]:
    """What agents did and changed, each section with its anchor."""
    for number, section in enumerate(deed_sections(summary, _named)):
        lines = tuple((_named(label), text) for label, text in section.lines[:_MOST_ROWS])
        alarms = section.alarms[:_MOST_ROWS]
        yield f"deeds-{number}", replace(section, lines=lines, alarms=alarms)


def _named(text: str) -> str:
    return one_line(text, _LONGEST_LABEL)


_LONGEST_REASON = 500


class AsHtml:
    """A self-contained HTML page: no script, no network."""

    def write(self, contents: Contents, file: TextIO) -> None:
        write_page(contents, file)


def write_page(contents: Contents, file: TextIO, *, largest: int = LARGEST_PAGE) -> None:
    """`largest`: approximate number of characters beyond which trials are shown in short."""
    figures = figures_of(contents)
    against = against_of(contents)
    room = PageBudget(largest=largest, unpassed=figures.unpassed_size)
    for piece in rendered_in_pieces("top.html", **_top(contents, figures, against)):
        room.take(len(piece))
        file.write(piece)
    linked = figures.linked_cases | (against.linked_cases if against else frozenset())
    cases = CaseWriter(contents, figures, room, file, linked_cases=linked)
    cases.write()
    file.write(
        rendered(
            "bottom.html",
            not_here=cases.not_here(),
            run_id=contents.run.id,
        )
    )


def _top(
    contents: Contents, figures: PageFigures, against: BaselineSection | None
) -> dict[str, Any]:
    summary = contents.summary
    answers = answers_of(contents)
    deeds = list(deed_lists(summary))
    tiles = tiles_of(summary)
    charts = list(charts_of(contents.run, figures, past_of(contents)))
    heat = heat_map(figures.heat_columns, figures.heat)
    first = [("against", "Compared with the baseline")] if against else []
    links = _links(deeds, charts, has_heat=bool(heat))
    closing = closing_sentences(contents, lambda text: one_line(text, _LONGEST_REASON))
    return {
        "policy": policy(),
        "style": style(),
        "heading": heading_of(contents),
        "answers": answers,
        "rate": rate_of(summary),
        "against": against,
        "links": [*first, *links],
        "tiles": tiles[:MOST_TILES],
        "more_tiles": tiles[MOST_TILES:_MOST_ROWS],
        "table": table_of(summary, running=contents.run.running),
        "breakdowns": breakdown_tables(summary, HtmlPage()),
        "units": UNITS,
        "elsewhere": f"paraval report {contents.run.id} -o report.json",
        "closing": closing,
        "deeds": deeds,
        "heat": heat,
        "heat_shown": len(figures.heat),
        "heat_left_out": figures.heat_left_out,
        "charts": charts,
        "lists": list(lists_of(summary, figures)),
        "nothing_unpassed": nothing_unpassed(summary),
        "filters": filters_of(contents.book),
    }


def _links(
    deeds: list[tuple[str, Section]], charts: list[Chart], *, has_heat: bool
) -> Iterator[tuple[str, str]]:
    if has_heat:
        yield "map", "Cases by variant"
    yield "unpassed", "Failures and errors"
    yield "rates", "Figures"
    yield from ((chart.anchor, chart.heading) for chart in charts)
    yield from ((anchor, section.heading) for anchor, section in deeds)
    yield "cases", "All cases"
