"""Each comparison in one plain sentence, word for word."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from paraval.report.compare.comparison import (
    CaseChanges,
    Comparison,
    Difference,
    EarlyStopState,
    Finding,
    LeftOut,
    Method,
    PassAtK,
    Ratio,
    Side,
)
from paraval.report.compare.sentences import (
    details,
    evidence,
    figure_lines,
    heading,
    headline,
    not_made,
    notes,
    p_value,
    plural,
    points,
    score_line,
    sentence,
    short_evidence,
    short_row,
    signed,
    signed_points,
    signed_range,
    times,
    turned_lines,
)
from paraval.text.document import code


def plain(text: str) -> str:
    return text


def difference(mean: float, low: float, high: float, p: float, **other: Any) -> Difference:
    usual: dict[str, Any] = {"method": Method.MCNEMAR, "wins": 8, "losses": 0, "adjusted_p": p}
    return Difference(mean=mean, interval=(low, high), p=p, **(usual | other))


def comparison(passing: Difference | None, finding: Finding, **other: Any) -> Comparison:
    usual: dict[str, Any] = {
        "subject": Side(label="with-mcp"),
        "reference": Side(label="without-mcp"),
        "cases": 30,
        "confidence": 0.95,
        "rate_subject": None,
        "rate_reference": None,
        "score": None,
        "detectable": 0.18,
        "if_errors": None,
        "seconds": None,
        "cost": None,
    }
    return Comparison(passing=passing, finding=finding, **(usual | other))


BETTER = comparison(difference(0.12, 0.03, 0.21, 0.0104), Finding.BETTER)
WORSE = comparison(
    difference(-0.08, -0.15, -0.01, 0.03),
    Finding.WORSE,
    subject=Side(label="B"),
    reference=Side(label="A"),
    cases=60,
)
EQUAL = comparison(difference(0.02, -0.09, 0.13, 0.75), Finding.NOT_SHOWN)


def test_a_difference_that_is_shown_is_said_with_its_interval_and_its_p() -> None:
    assert sentence(BETTER, plain) == (
        "with-mcp passes 12 points more than without-mcp (95% CI +3 to +21, 30 cases, p = 0.01):"
        " better"
    )
    assert sentence(WORSE, plain) == (
        "B passes 8 points less than A (95% CI −15 to −1, 60 cases, p = 0.03): worse"
    )


def test_one_that_is_not_shown_says_what_could_be() -> None:
    assert sentence(EQUAL, plain) == (
        "with-mcp vs without-mcp: no difference shown (+2 points, 95% CI −9 to +13, 30 cases,"
        " p = 0.75); 30 cases can only detect 18 points or more"
    )
    level = replace(EQUAL, passing=difference(0.0, -0.08, 0.08, 1.0, wins=0))
    assert sentence(level, plain) == (
        "with-mcp vs without-mcp: no difference shown (0 points, 95% CI −8 to +8, 30 cases,"
        " p = 1); 30 cases can only detect 18 points or more"
    )


def test_of_too_few_cases_both_truths_are_said() -> None:
    """What these cases showed, and that it says nothing about others."""
    few = replace(EQUAL, cases=4, detectable=1.3, passed_subject=(12, 12), passed_reference=(0, 12))
    words = "with-mcp passed 12/12, without-mcp 0/12; 4 cases are too few to generalize"
    assert sentence(few, plain) == headline(few, plain) == words
    assert (evidence(few), short_evidence(few)) == ("", "")
    row = short_row(few, plain)
    assert (row.difference, row.interval, row.finding) == ("+2 points", "", words)
    one = replace(few, cases=1, over={"model": 2})
    assert sentence(one, plain).endswith(" 0/12 over 2 models; 1 case is too few to generalize")


def test_a_comparison_has_a_row_of_its_own() -> None:
    passing = difference(0.26, 0.013, 0.46, 0.0313, adjusted_p=0.0938)
    for made, row, beside in (
        (BETTER, ("+12 points", "(+3 to +21)", "better"), "30 cases, p = 0.01"),
        (
            EQUAL,
            ("+2 points", "(−9 to +13)", "no difference shown"),
            "30 cases, p = 0.75; 30 cases can only detect 18 points or more",
        ),
        (
            replace(EQUAL, passing=passing, among=3),
            ("+26 points", "(+1 to +46)", "no difference shown (adjusted for 3 comparisons)"),
            (
                "30 cases, p = 0.094, adjusted for 3 comparisons;"
                " 30 cases can only detect 18 points or more"
            ),
        ),
        (
            ANY_TIME,
            ("+20 points", "(+1 to +40)", "better; stopped after 12 of 60 cases"),
            "8 wins, 0 losses, p = 0.035",
        ),
        (
            replace(EQUAL, passing=difference(0.1, -1, 1, 1, method=Method.NONE)),
            ("+10 points", "", "nothing can be claimed"),
            "",
        ),
        (
            comparison(None, Finding.NOT_SHOWN, cases=0),
            ("", "", "no case has a verdict on both sides"),
            "",
        ),
    ):
        short = short_row(made, plain)
        assert short.names == "with-mcp vs without-mcp"
        assert (short.difference, short.interval, short.finding) == row
        assert short_evidence(made) == beside


def test_what_was_held_equal_and_how_many_were_made_is_said() -> None:
    passing = difference(0.12, 0.03, 0.21, 0.0104, adjusted_p=0.0312)
    among = replace(BETTER, passing=passing, among=3, over={"model": 3})
    assert sentence(among, plain) == (
        "with-mcp passes 12 points more than without-mcp over 3 models (95% CI +3 to +21, 30 cases,"
        " p = 0.031, adjusted for 3 comparisons): better"
    )
    both = replace(EQUAL, over={"model": 3, "category": 2})
    assert sentence(both, plain).startswith(
        "with-mcp vs without-mcp over 3 models and 2 categories: no difference shown"
    )
    assert " over 3 <code>models</code> (" in sentence(among, code)


def test_why_a_difference_beside_others_is_not_shown_can_be_seen() -> None:
    """The interval is that of this comparison alone; the p-value makes up for the others."""
    passing = difference(0.26, 0.013, 0.46, 0.0313, adjusted_p=0.0938)
    assert sentence(replace(EQUAL, passing=passing, cases=19, among=3), plain) == (
        "with-mcp vs without-mcp: no difference shown (+26 points, 95% CI +1 to +46, 19 cases,"
        " p = 0.094, adjusted for 3 comparisons); 19 cases can only detect 18 points or more"
    )
    for p, adjusted_p, told in (
        (0.0002, 0.0006, "p < 0.001, adjusted for 3 comparisons"),
        (0.0002, 0.002, "p = 0.002, adjusted for 3 comparisons"),
        (0.62, 0.62, "p = 0.62, adjusted for 3 comparisons"),
    ):
        passing = difference(0.26, 0.013, 0.46, p, adjusted_p=adjusted_p)
        assert f", {told})" in sentence(replace(EQUAL, passing=passing, among=3), plain)
    nothing_left = difference(0.26, 0.013, 0.46, 0.62, adjusted_p=1.0)
    assert "p =" not in sentence(replace(EQUAL, passing=nothing_left, among=3), plain)
    score = difference(0.05, -0.01, 0.094, 0.04, adjusted_p=0.12)
    assert score_line(replace(BETTER, score=score, among=3)) == (
        "score: +0.05 (−0.01 to +0.09, p = 0.12, adjusted for 3 comparisons)"
    )


def stopped(
    used: int, planned: int = 60, *, decided: bool = False, futile: bool = False
) -> EarlyStopState:
    return EarlyStopState(used=used, planned=planned, decided=decided, futile=futile)


ANY_TIME = comparison(
    difference(0.2, 0.01, 0.4, 0.0352, method=Method.ANYTIME),
    Finding.BETTER,
    stopped=stopped(12, decided=True),
    detectable=None,
)


def test_claims_of_a_run_that_stopped_say_that_they_hold_at_any_time() -> None:
    assert sentence(ANY_TIME, plain) == (
        "with-mcp passes 20 points more than without-mcp (95% CI +1 to +40 at any time, 8 wins,"
        " 0 losses, stopped after 12 of 60 cases, p = 0.035): better"
    )
    assert sentence(replace(ANY_TIME, stopped=stopped(60, decided=True)), plain).endswith(
        "8 wins, 0 losses, 60 cases, p = 0.035): better"
    )
    shown = replace(ANY_TIME, finding=Finding.NOT_SHOWN)
    assert sentence(replace(shown, stopped=stopped(12)), plain).endswith(
        "8 wins, 0 losses, 12 of 60 cases so far, p = 0.035)"
    )
    assert sentence(replace(shown, stopped=stopped(55, futile=True)), plain).endswith(
        "stopped after 55 of 60 cases, p = 0.035); the remaining cases could not show one"
    )
    assert sentence(replace(shown, stopped=stopped(60, futile=True)), plain).endswith(
        "60 cases, p = 0.035)"
    )


def test_nothing_is_claimed_of_nothing() -> None:
    nothing = comparison(None, Finding.NOT_SHOWN, cases=0)
    assert sentence(nothing, plain) == (
        "with-mcp vs without-mcp: no case has a verdict on both sides"
    )
    unclaimed = replace(EQUAL, passing=difference(0.1, -1, 1, 1, method=Method.NONE))
    assert sentence(unclaimed, plain) == (
        "with-mcp vs without-mcp: nothing can be claimed (+10 points, 30 cases)"
    )


def test_small_words_say_what_is_left_out() -> None:
    left_out = LeftOut(only_subject=("x",), unjudged=("y",), unjudged_reference=("y",))
    assert notes(replace(WORSE, left_out=left_out), plain) == [
        "left out: 1 case only in B, 1 without a verdict in A"
    ]
    errors = LeftOut(
        unjudged=("x", "y", "z"), unjudged_subject=("x",), unjudged_reference=("y", "z")
    )
    assert notes(replace(WORSE, left_out=errors), plain) == [
        "left out: 1 case without a verdict in B, 2 in A"
    ]
    both = LeftOut(unjudged=("y",), unjudged_reference=("y",), unjudged_subject=("y",))
    assert notes(replace(WORSE, left_out=both), plain) == [
        "left out: 1 case without a verdict in both"
    ]
    assert notes(WORSE, plain) == []


@pytest.mark.parametrize(
    ("made", "bounds", "is_said"),
    [
        (BETTER, (-0.04, 0.21), True),
        (BETTER, (0.04, 0.21), False),
        (WORSE, (-0.2, 0.0), True),
        (WORSE, (-0.2, -0.1), False),
        (EQUAL, (-0.04, 0.21), True),
        (EQUAL, (-0.04, 0.12), False),
        (comparison(None, Finding.NOT_SHOWN, cases=0), (-0.5, 0.5), True),
    ],
)
def test_errors_are_told_where_they_could_turn_the_finding(
    made: Comparison, bounds: tuple[float, float], is_said: bool
) -> None:
    assert bool(notes(replace(made, if_errors=bounds), plain)) == is_said
    if made is BETTER and is_said:
        (told,) = notes(replace(made, if_errors=bounds), plain)
        assert told == "errors could change this: anything from −4 to +21 points"


def test_time_cost_and_repeats_have_a_line_each() -> None:
    made = replace(
        BETTER,
        seconds=Ratio(ratio=1.8, interval=(1.5, 2.1), cases=30),
        cost=Ratio(ratio=0.4, interval=(0.31, 0.52), cases=12),
        pass_at=(
            PassAtK(
                k=3,
                cases=30,
                any_subject=0.9,
                any_reference=0.8,
                all_subject=0.5,
                all_reference=0.25,
            ),
        ),
    )
    assert figure_lines(made, plain) == [
        "time of a typical case: 1.8 times as long (1.5 to 2.1)",
        "cost: 0.4 times as much (0.31 to 0.52, 12 cases)",
        "pass@3: 90% vs 80%; pass^3: 50% vs 25% (30 cases)",
    ]
    unknown = Ratio(ratio=1.8, interval=(0.0, float("inf")), cases=30)
    assert figure_lines(replace(BETTER, seconds=unknown), plain) == [
        "time of a typical case: 1.8 times as long"
    ]
    wide = Ratio(ratio=1.8, interval=(0.01, 30.0), cases=30)
    told = "time of a typical case: 1.8 times as long (too few cases for an interval)"
    assert figure_lines(replace(BETTER, seconds=wide), plain) == [told]
    same = Ratio(ratio=1.0, interval=(1.0, 1.0), cases=30)
    assert figure_lines(replace(BETTER, cost=same), plain) == ["cost: the same"]
    close = Ratio(ratio=1.004, interval=(0.99, 1.02), cases=30)
    assert figure_lines(replace(BETTER, seconds=close), plain) == [
        "time of a typical case: about the same (0.99 to 1.02)"
    ]
    noise = Ratio(ratio=1.02, interval=(0.95, 1.1), cases=30, of_totals=0.98)
    (line,) = figure_lines(replace(BETTER, seconds=noise), plain)
    assert "in total" not in line
    assert (
        "but in total 0.9 "
        in figure_lines(replace(BETTER, seconds=replace(noise, of_totals=0.9)), plain)[0]
    )
    narrow = Ratio(ratio=2.0, interval=(1.999, 2.001), cases=30)
    assert figure_lines(replace(BETTER, cost=narrow), plain) == ["cost: 2 times as much"]
    assert details(made, plain) == figure_lines(made, plain)


def test_timeouts_are_named_beside_the_ratio_of_times() -> None:
    """And not beside that of costs; without a ratio there is nothing that they could bend."""
    ratio = Ratio(ratio=1.8, interval=(1.5, 2.1), cases=30)
    made = replace(BETTER, seconds=ratio, cost=ratio, timeouts_subject=2, timeouts_reference=0)
    two = "; 2 timeouts of with-mcp not counted: true times are longer"
    assert figure_lines(made, plain) == [
        f"time of a typical case: 1.8 times as long (1.5 to 2.1){two}",
        "cost: 1.8 times as much (1.5 to 2.1)",
    ]
    both = replace(made, cost=None, timeouts_reference=1)
    (line,) = figure_lines(both, plain)
    assert "; 2 timeouts of with-mcp and 1 of without-mcp not counted: " in line
    assert figure_lines(replace(both, seconds=None), plain) == []


def test_scores_have_a_line_where_they_say_more() -> None:
    assert score_line(BETTER) is None
    made = replace(BETTER, score=difference(0.05, -0.01, 0.094, 0.2))
    assert score_line(made) == "score: +0.05 (−0.01 to +0.09, p = 0.2)"
    assert details(made, plain)[0] == score_line(made)


def test_cases_that_turned_are_named_a_few_at_a_time() -> None:
    turned = CaseChanges(broke=tuple("abcdefg"), mended=("x", "y"), flaky=("<z>",))
    assert turned_lines(replace(BETTER, turned=turned), plain) == [
        "regressed: a, b, c and 4 more",
        "fixed: x and y",
        "flaky: <z>",
    ]
    assert turned_lines(replace(BETTER, turned=turned), code)[2] == (
        "flaky: <code>&#60;z&#62;</code>"
    )


def test_headings_and_what_was_not_compared() -> None:
    assert heading("mode", plain, going_on=False) == "Compared by mode"
    assert heading(None, plain, going_on=True) == "Compared, so far"
    assert not_made(1) == "1 more pair of values was not compared"
    assert not_made(1200) == "1,200 more pairs of values were not compared"


# ---- numbers


def test_points_are_whole_from_two_on_and_nothing_only_when_it_is_nothing() -> None:
    shares = [0, 0.00001, 0.004, 0.01, 0.013, 0.0194, 0.02, 0.124, 0.996, 1, -0.5]
    assert [points(share) for share in shares] == [
        *("0 points", "0.1 points", "0.4 points", "1 point", "1.3 points", "1.9 points"),
        *("2 points", "12 points", "99 points", "100 points", "50 points"),
    ]
    assert [signed(share) for share in (0, -0.0, 1e-15, 0.05, -0.004)] == [
        *("0", "0", "0", "+5", "−0.4")
    ]
    assert (signed_points(-0.01), signed_points(0.12)) == ("−1 point", "+12 points")


def test_both_ends_of_a_range_have_one_precision() -> None:
    """As many digits as it takes to see on which side of the bound each end lies."""
    ranges = [
        *((0.013, 0.458), (0.003, 0.2077), (-0.007, 0.16), (-0.09, 0.13), (0, 0.2), (-1, 1)),
        *((-0.996, 0.999), (0.0061, 0.0144), (-0.004, 0.0), (0.0001, 0.3), (0, 0), (1e-9, 1)),
    ]
    assert [signed_range(one) for one in ranges] == [
        *("+1 to +46", "+0.3 to +20.8", "−1 to +16", "−9 to +13", "0 to +20", "−100 to +100"),
        *("−99 to +99", "+0.6 to +1.4", "−0.4 to 0", "+0.01 to +30.00", "0 to 0", "0 to +100"),
    ]
    assert signed_range((-0.3, -0.051), bound=-0.05) == "−30.0 to −5.1"
    assert signed_range((-0.049, 0.02), bound=-0.05) == "−4.9 to +2.0"
    assert signed_range((-0.05, 0.02), bound=-0.05) == "−5 to +2"


def test_a_p_value_is_seen_to_be_on_its_side_of_what_was_asked() -> None:
    ps = [0, 0.0009, 0.001, 0.0104, 0.0349, 0.0496, 0.04999, 0.05, 0.0503, 0.75, 1]
    assert [p_value(p) for p in ps] == [
        *("p < 0.001", "p < 0.001", "p = 0.001", "p = 0.01", "p = 0.035", "p = 0.0496"),
        *("p = 0.04999", "p = 0.05", "p = 0.05", "p = 0.75", "p = 1"),
    ]
    assert p_value(0.0996, 0.9) == "p = 0.0996"


def test_ratios_have_the_digits_that_tell() -> None:
    ratios = [0.0042, 0.4, 0.97, 1, 1.04, 1.8, 2, 2.64, 9.96, 12.3, 1234.5]
    assert [times(ratio) for ratio in ratios] == [
        *("0.0042", "0.4", "0.97", "1", "1.04", "1.8", "2", "2.6", "10", "12", "1,234")
    ]


def test_axes_have_plurals() -> None:
    assert [plural(axis) for axis in ("model", "category", "key", "tools")] == [
        *("models", "categories", "keys", "tools")
    ]


def test_of_one_case_no_ratio_is_told() -> None:
    alone = Ratio(ratio=0.2, interval=(0.0, math.inf), cases=1)
    assert figure_lines(replace(EQUAL, cases=1, seconds=alone, cost=alone, pass_at=()), plain) == []
