"""The figures by variant, with the case as unit, and the table that shows them at any width."""

from __future__ import annotations

import csv
import io
import math
import random
from dataclasses import replace
from statistics import fmean, stdev

import pytest
from hypothesis import given, settings, strategies as st
from wcwidth import wcswidth

from paraval.records import Activity, Outcome, Spend, ToolUse, TrialResult, Variant
from paraval.report.compare.case_results import CaseBook, Cell
from paraval.report.report import Report
from paraval.report.summary.costs import tokens_in
from paraval.report.summary.figures import figures_of
from paraval.report.summary.summary import Clusters, summarize
from paraval.statistics.rates import clustered_rate_interval, wilson
from tests.test_report import HOSTILE, Made, counts, ended, plain, report_of, small_report, written

WIDTHS = (40, 60, 80, 100, 120)
A: Variant = {"model": "a"}
B: Variant = {"model": "b"}


def scored(score: float, case: str, variant: Variant = A, repeat: int = 1) -> TrialResult:
    outcome = Outcome.PASSED if score >= 0.5 else Outcome.FAILED
    trial = ended(outcome, case=case, variant=variant, repeat=repeat)
    return replace(trial, result=replace(trial.result, score=score))


def spending(usage: dict[str, float], variant: Variant = A) -> TrialResult:
    return replace(ended(variant=variant), spend=Spend(calls=1, cost_usd=0.25, usage=usage))


def calling(*calls: int, tells: bool = True, variant: Variant = A) -> TrialResult:
    tools = tuple(ToolUse(name=f"t{n}", calls=number) for n, number in enumerate(calls))
    trial = ended(variant=variant)
    activity = Activity(turns=1, tools=tools, tells_tools=tells)
    return replace(trial, result=replace(trial.result, activity=activity))


def full_report() -> Report:
    """Something for every column, in two variants with long names."""
    names = ("large-model · with-mcp", "small · without-mcp")
    trials = []
    for name in names:
        variant: Variant = {"x": name}
        usage = {"input_tokens": 1_200_000.0, "output_tokens": 34_567.0}
        trial = replace(scored(0.7, "a", variant), spend=Spend(calls=1, cost_usd=12.5, usage=usage))
        activity = Activity(turns=3, tools=(ToolUse(name="Bash", calls=5),))
        trials += [
            replace(trial, result=replace(trial.result, activity=activity), judging=Spend(calls=1)),
            scored(0.2, "b", variant),
            ended(Outcome.TIMEOUT, "c", variant),
            ended(Outcome.SKIPPED, "d", variant, total_s=0.0),
        ]
    return report_of(*trials)


def table_of(report: Report, width: int) -> list[str]:
    return plain(report, width).split("\n\n")[0].splitlines()


def shown(report: Report, width: int) -> list[str]:
    """The headings of the columns."""
    head = table_of(report, width)[0].replace("mean of cases (95%)", "pass_rate")
    head = head.replace("pass rate (95%)", "pass_rate")
    return head.replace("could be", "could_be").replace("calls/trial", "calls").split()[1:]


# ---- the figures


def test_a_stream_is_summed_up_in_one_pass_with_its_book() -> None:
    made = Made(trials=[ended(), ended(Outcome.FAILED, case="b")])
    book = CaseBook()
    for trial in made.trials:
        book.add(trial)
    summary = summarize(made.results(), made.info(), book)
    assert (summary.judged, summary.cases) == (2, 2)


def repeated(ends: dict[tuple[str, str], tuple[int, int, int]]) -> list[TrialResult]:
    """Of a variant and a case: how many repeats passed, failed and ended in errors."""
    kinds = (Outcome.PASSED, Outcome.FAILED, Outcome.TIMEOUT)
    return [
        ended(outcome, case=case, variant={"model": model}, repeat=n)
        for (model, case), numbers in ends.items()
        for n, outcome in enumerate(
            [kind for kind, number in zip(kinds, numbers, strict=True) for _ in range(number)], 1
        )
    ]


def test_an_interval_takes_the_repeats_of_a_case_together_by_variant_and_in_all() -> None:
    ends = {("a", "x"): (3, 1, 0), ("a", "y"): (0, 4, 0), ("b", "x"): (4, 0, 0)}
    summary = report_of(*repeated({**ends, ("b", "y"): (2, 2, 0)})).summary
    one, other = summary.variants
    assert one.pass_rate_interval == clustered_rate_interval([(3, 4), (0, 4)])
    assert other.pass_rate_interval == clustered_rate_interval([(4, 4), (2, 4)])
    assert summary.pass_rate_interval == clustered_rate_interval([(7, 8), (2, 8)])
    assert (one.cases, other.cases, summary.cases) == (2, 2, 2)


def test_a_rate_is_the_mean_of_the_cases_whatever_repeats_errors_took() -> None:
    """Hard cases that lost repeats count as much as easy ones; the rate is the comparison's."""
    easy = {(model, f"e{n}"): (4, 0, 0) for model in "ab" for n in range(6)}
    hard = {("a", f"h{n}"): (0, 4, 0) for n in range(4)} | {
        ("b", f"h{n}"): (0, 1, 3) for n in range(4)
    }
    report = report_of(*repeated({**easy, **hard, ("b", "gone"): (0, 0, 4)}))
    summary = report.summary
    one, other = summary.variants
    assert (one.pass_rate, other.pass_rate, summary.pass_rate) == (0.6, 0.6, 0.6)
    assert (one.is_by_case, other.is_by_case, summary.is_by_case) == (False, True, True)
    (comparison,) = report.comparisons
    assert comparison.passing is not None
    assert comparison.passing.mean == 0
    assert (other.rate_if_errors_failed, other.rate_if_errors_passed) == (6 / 11, 10 / 11)
    assert summary.rate_if_errors_failed == 12 / 21
    assert summary.rate_if_errors_passed == 16 / 21
    page = written(report, ".html")
    assert "each case counts the same" in page
    assert "the mean of cases, over" in page
    repeats = 10 / (6 / 4 + 4)
    assert other.pass_rate_interval == pytest.approx(
        clustered_rate_interval([(repeats, repeats)] * 6 + [(0, repeats)] * 4), abs=1e-12
    )


@given(st.integers(1, 7), st.data())
@settings(max_examples=25, deadline=None)
def test_with_as_many_repeats_of_all_a_rate_is_the_share_that_passed(
    repeats: int, data: st.DataObject
) -> None:
    passes = data.draw(st.lists(st.integers(0, repeats), min_size=1, max_size=8))
    ends = {("a", f"c{n}"): (passed, repeats - passed, 0) for n, passed in enumerate(passes)}
    (only,) = report_of(*repeated(ends)).summary.variants
    assert only.pass_rate == sum(passes) / (repeats * len(passes))
    assert only.pass_rate_interval == clustered_rate_interval([(n, repeats) for n in passes])
    assert not only.is_by_case


def test_cases_of_one_rate_are_as_many_cases_whatever_their_repeats() -> None:
    ends = {("a", f"c{n}"): (n, 2 * n, 0) for n in range(1, 8)}
    (only,) = report_of(*repeated(ends)).summary.variants
    assert only.pass_rate_interval == pytest.approx(wilson(7 / 3, 7), abs=1e-12)


def test_an_interval_holds_the_truth_where_hard_cases_lose_repeats() -> None:
    """By simulation, with three standard errors left to chance."""
    chance, runs, held = random.Random(3), 400, 0
    for _ in range(runs):
        cases = Clusters()
        for _ in range(50):
            rate = chance.random()
            judged = 1 + sum(chance.random() < rate for _ in range(4))
            passed = sum(chance.random() < rate for _ in range(judged))
            cases.add([Cell(passed, judged - passed, 5 - judged, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0)])
        low, high = cases.rate_interval() or (0.0, 0.0)
        held += low <= 0.5 <= high
    assert held / runs >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / runs)


def test_with_one_repeat_the_interval_is_wilsons_and_errors_are_no_cases() -> None:
    (only,) = counts(7, 3, 5).summary.variants
    assert only.cases == 10
    assert only.pass_rate_interval == wilson(7, 10)


def test_a_score_is_the_mean_of_the_cases_means() -> None:
    """A case that was repeated more often counts no more than another."""
    trials = [scored(1.0, "a"), scored(0.5, "a", repeat=2), scored(0.6, "a", repeat=3)]
    (only,) = report_of(*trials, scored(0.1, "b")).summary.variants
    means = [0.7, 0.1]
    assert only.score == pytest.approx(fmean(means))
    half = 12.7062 * stdev(means) / math.sqrt(2)
    assert half > 1
    assert only.score_interval == (0.0, 1.0)
    assert only.is_scored


def test_the_interval_of_a_score_is_over_cases_and_allows_for_what_they_missed() -> None:
    scores = [0.50, 0.55, 0.60, 0.52, 0.58, 0.51]
    (only,) = report_of(*(scored(s, f"c{n}") for n, s in enumerate(scores))).summary.variants
    mean, half = fmean(scores), 2.570582 * stdev(scores) / math.sqrt(6)
    low, high = only.score_interval or (0.0, 0.0)
    # Six cases may have missed one in three: the bounds are further away than Student's.
    assert 0 < low < mean - half
    assert mean + half < high < 1


def test_scores_that_do_not_vary_have_an_interval_and_none_at_all_no_mean() -> None:
    (same,) = report_of(scored(0.7, "a"), scored(0.7, "b")).summary.variants
    assert same.score == pytest.approx(0.7)
    low, high = same.score_interval or (0.0, 0.0)
    assert low < 0.3
    assert high > 0.9
    errors = counts(0, 0, 3).summary
    assert (errors.score, errors.score_interval, errors.is_scored) == (None, None, False)


def test_scores_of_passed_and_failed_alone_make_no_column() -> None:
    assert not counts(3, 2).summary.is_scored
    assert "score" not in shown(counts(3, 2), 200)
    even = report_of(scored(0.7, "a"), scored(0.3, "b"))
    assert even.summary.is_scored
    assert "score" in shown(even, 200)


def test_the_p95_is_of_trials_that_ran() -> None:
    trials = [ended(case=f"c{n}", total_s=float(n)) for n in range(101)]
    skipped = ended(Outcome.SKIPPED, total_s=0.0)
    summary = report_of(*trials, *[skipped] * 50).summary
    assert (summary.median_s, summary.p95_s) == (50.0, 95.0)
    assert report_of(skipped).summary.p95_s is None


def test_tokens_are_in_and_out_and_unknown_where_nobody_told() -> None:
    told = {"input_tokens": 100.0, "output_tokens": 20.0, "cached_tokens": 60.0}
    report = report_of(spending(told), spending({"calls": 3.0}, B))
    one, other = report.summary.variants
    assert (one.tokens, other.tokens, report.summary.tokens) == (120, None, 120)
    assert tokens_in({"input_tokens": math.nan, "output_tokens": 7.0}) == 7
    first, second = csv.DictReader(io.StringIO(written(report, ".csv")))
    assert (first["tokens"], second["tokens"]) == ("120.0", "")


def test_calls_are_over_the_trials_whose_agents_tell_them() -> None:
    report = report_of(calling(4, 3), calling(), calling(tells=False), calling(2, variant=B))
    one, other = report.summary.variants
    assert (one.tool_calls, one.calls_a_trial) == (7, 3.5)
    assert (other.tool_calls, other.calls_a_trial) == (2, 2.0)
    silent = report_of(calling(tells=False)).summary
    assert (silent.tool_calls, silent.calls_a_trial) == (None, None)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from(list(Outcome))),
        max_size=30,
    )
)
@settings(max_examples=60, deadline=None)
def test_whatever_happened_the_figures_fit_together(
    ends: list[tuple[str, str, Outcome]],
) -> None:
    trials = [ended(outcome, case=case, variant={"model": model}) for case, model, outcome in ends]
    summary = report_of(*trials).summary
    for tally in (summary, *summary.variants):
        assert (tally.pass_rate is None) == (tally.pass_rate_interval is None) == (not tally.judged)
        if tally.pass_rate is not None and tally.pass_rate_interval is not None:
            low, high = tally.pass_rate_interval
            assert 0 <= low <= tally.pass_rate <= high <= 1
            worst, best = tally.rate_if_errors_failed, tally.rate_if_errors_passed
            assert worst is not None
            assert best is not None
            assert worst <= tally.pass_rate <= best
        assert tally.cases <= 3
    assert sum(one.judged for one in summary.variants) == summary.judged


# ---- the table


def test_what_errors_could_hide_is_told_where_there_are_some() -> None:
    told = "With 2 errors as failures or as passes, the pass rate is 43–71%"
    assert told in plain(counts(3, 2, 2))
    assert "as failures" not in plain(counts(3, 2))


def test_all_errors_could_be_anything_and_nothing_judged_has_no_rate() -> None:
    _, row = table_of(counts(0, 0, 3), 80)
    assert row == "all trials                -       -       -       3"
    skipped = report_of(ended(Outcome.SKIPPED, total_s=0.0))
    assert shown(skipped, 80) == ["pass_rate", "passed", "median", "skipped", "errors"]
    assert table_of(skipped, 80)[1].split()[2:] == ["-", "-", "-", "1", "0"]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_table_fits_and_keeps_what_is_asked_first(width: int) -> None:
    for report in (full_report(), small_report(), counts(100, 50, 50), counts(0, 0, 3)):
        assert max(map(wcswidth, table_of(report, width))) <= width
        headings = shown(report, width)
        assert headings[0] == ("rate" if width < 60 else "pass_rate")
        assert headings[-1] == "errors"


def test_a_wider_page_shows_more_columns_never_others() -> None:
    for report in (full_report(), counts(100, 50)):
        narrow: list[str] = []
        for width in (60, 80, 100, 120, 200):
            headings = shown(report, width)
            assert [one for one in headings if one in narrow] == narrow
            narrow = headings
    assert shown(full_report(), 200) == [
        *("pass_rate", "passed", "cost", "median", "score", "skipped", "judges", "calls"),
        "errors",
    ]
    assert shown(full_report(), 80)[1:3] == ["passed", "cost"]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        *((0, "0"), (9_999, "9,999"), (10_000, "10 k"), (999_499, "999 k"), (999_500, "1.0 M")),
        *((99_940_000, "99.9 M"), (123_456_789, "123 M"), (12_345_678_901, "12,346 M")),
    ],
)
def test_tokens_are_told_short(number: float, text: str) -> None:
    report = report_of(spending({"input_tokens": float(number)}))
    (column,) = [one for one in figures_of([report.summary]) if one.heading == "tokens"]
    assert column.cell(report.summary) == text


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_names_of_variants_leave_the_table_straight(width: int) -> None:
    trials = [
        ended(outcome, variant={"axis": text})
        for text in HOSTILE
        for outcome in (Outcome.PASSED, Outcome.CRASHED)
    ]
    rows = table_of(report_of(*trials), width)
    assert max(map(wcswidth, rows)) <= width
    assert sum("100%" in row for row in rows) >= len(HOSTILE)
    assert not any("\x1b" in row for row in rows)
