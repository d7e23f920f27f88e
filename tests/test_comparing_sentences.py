"""Each kind of comparison in a plain sentence, and the lines beside it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from paraval.report.compare.claims import (
    claim_of,
    details,
    figure_lines,
    heading,
    not_made,
    notes,
    p_value,
    plural,
    points,
    score_claim,
    score_line,
    signed_points,
    signed_range,
    times,
    turned_lines,
)
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
from paraval.text.document import code


def difference(mean: float, low: float, high: float, p: float, **other: Any) -> Difference:
    usual: dict[str, Any] = {"method": Method.MCNEMAR, "wins": 8, "losses": 0, "adjusted_p": p}
    return Difference(mean=mean, interval=(low, high), p=p, **(usual | other))


EQUAL = Comparison(
    subject=Side(label="B"),
    reference=Side(label="A"),
    passing=difference(0.02, -0.09, 0.13, 0.75),
    finding=Finding.NOT_SHOWN,
    cases=30,
    confidence=0.95,
    rate_subject=None,
    rate_reference=None,
    score=None,
    detectable=0.18,
    if_errors=None,
    seconds=None,
    cost=None,
)
BETTER = replace(EQUAL, passing=difference(0.12, 0.03, 0.21, 0.0104), finding=Finding.BETTER)
WORSE = replace(EQUAL, passing=difference(-0.08, -0.15, -0.01, 0.03), finding=Finding.WORSE)
ADJUSTED = difference(0.26, 0.013, 0.46, 0.0313, adjusted_p=0.0938)
FEW = replace(EQUAL, cases=4, detectable=1.3, passed_subject=(12, 12), passed_reference=(0, 12))
NOTHING = replace(EQUAL, passing=None, cases=0)
NO_CLAIM = replace(EQUAL, passing=difference(0.1, -1, 1, 1, method=Method.NONE))
NONE_SHOWN = "no difference shown"
OPEN = f"B vs A: {NONE_SHOWN}"
FUTILE = "the remaining cases could not show one"
POWER = "30 cases can only detect 18 points or more"
BESIDE_OTHERS = f"{NONE_SHOWN} (adjusted for 3 comparisons)"
ALL = "B passed 12/12, A 0/12"
SOONER = "+20 points, 95% CI −1 to +40 at any time, 8 wins, 0 losses"
SHOWN_SOONER = "95% CI +1 to +40 at any time, 8 wins, 0 losses"


def early(used: int, finding: Finding = Finding.NOT_SHOWN, **ended: bool) -> Comparison:
    stopped = EarlyStopState(used=used, planned=60, **({"decided": False, "futile": False} | ended))
    low = -0.01 if finding is Finding.NOT_SHOWN else 0.01
    passing = difference(0.2, low, 0.4, 0.0352, method=Method.ANYTIME)
    return replace(EQUAL, passing=passing, finding=finding, stopped=stopped, detectable=None)


@pytest.mark.parametrize(
    ("made", "headline", "evidence", "verdict"),
    [
        (
            BETTER,
            "B passes 12 points more than A",
            "95% CI +3 to +21, 30 cases, p = 0.01",
            "better",
        ),
        (WORSE, "B passes 8 points less than A", "95% CI −15 to −1, 30 cases, p = 0.03", "worse"),
        (EQUAL, OPEN, f"+2 points, 95% CI −9 to +13, 30 cases, p = 0.75; {POWER}", NONE_SHOWN),
        (
            replace(EQUAL, passing=ADJUSTED, among=3, over={"model": 3, "category": 2}),
            f"B vs A over 3 models and 2 categories: {NONE_SHOWN}",
            "+26 points, 95% CI +1.3 to +46, 30 cases, p = 0.094, adjusted for 3 comparisons; "
            + POWER,
            BESIDE_OTHERS,
        ),
        (
            replace(EQUAL, passing=replace(ADJUSTED, adjusted_p=1.0), among=3, detectable=None),
            OPEN,
            "+26 points, 95% CI +1.3 to +46, 30 cases",
            BESIDE_OTHERS,
        ),
        (FEW, f"{ALL}; 4 cases are too few to generalize", "", None),
        (
            replace(FEW, cases=1, over={"model": 2}),
            f"{ALL} over 2 models; 1 case is too few to generalize",
            "",
            None,
        ),
        (
            NO_CLAIM,
            "B vs A: nothing can be claimed",
            "+10 points, 30 cases",
            "nothing can be claimed",
        ),
        (
            NOTHING,
            "B vs A: no case has a verdict on both sides",
            "",
            "no case has a verdict on both sides",
        ),
        (
            early(12, Finding.BETTER, decided=True),
            "B passes 20 points more than A",
            f"{SHOWN_SOONER}, stopped after 12 of 60 cases, p = 0.035",
            "better; stopped after 12 of 60 cases",
        ),
        (
            early(60, Finding.BETTER, decided=True),
            "B passes 20 points more than A",
            f"{SHOWN_SOONER}, 60 cases, p = 0.035",
            "better",
        ),
        (
            early(12),
            OPEN,
            f"{SOONER}, 12 of 60 cases so far, p = 0.035",
            f"{NONE_SHOWN}; 12 of 60 cases so far",
        ),
        (early(60, futile=True), OPEN, f"{SOONER}, 60 cases, p = 0.035", NONE_SHOWN),
        (
            early(55, futile=True),
            OPEN,
            f"{SOONER}, stopped after 55 of 60 cases, p = 0.035; {FUTILE}",
            f"{NONE_SHOWN}; stopped after 55 of 60 cases",
        ),
    ],
)
def test_each_kind_of_finding_has_its_words(
    made: Comparison, headline: str, evidence: str, verdict: str | None
) -> None:
    claim = claim_of(made, str)
    assert (claim.headline, claim.evidence) == (headline, evidence)
    assert claim.verdict == (headline if verdict is None else verdict)
    assert claim.names.startswith("B vs A")
    assert bool(claim.estimate) is bool(made.cases)
    found = "" if made.finding is Finding.NOT_SHOWN else f": {made.finding.value}"
    figures, *power = evidence.split("; ")
    told = f"{headline} ({figures})" if figures else headline
    assert claim.sentence == "; ".join((told + found, *power))


def test_names_are_quoted_and_scores_have_a_sentence_of_their_own() -> None:
    made = replace(BETTER, over={"<m>": 3}, subject=Side(label="<b>"))
    assert claim_of(made, code).headline == (
        "<code>&#60;b&#62;</code> passes 12 points more than <code>A</code>"
        " over 3 <code>&#60;m&#62;s</code>"
    )
    score = difference(0.05, -0.01, 0.094, 0.04)
    partly = replace(EQUAL, score_cases=20, are_scores_partial=True)
    told = score_claim(partly, score, Finding.NOT_SHOWN, str).sentence
    assert told == (
        "B vs A: no difference in scores shown (+0.05, 95% CI −0.01 to +0.09, 20 cases with the"
        " same graders, p = 0.04)"
    )
    told = score_claim(EQUAL, difference(-0.05, -0.09, -0.01, 0.04), Finding.WORSE, str).sentence
    assert told == ("B scores 0.05 less than A (95% CI −0.09 to −0.01, 30 cases, p = 0.04): worse")


def test_cases_that_are_left_out_are_counted_by_the_reason() -> None:
    every = LeftOut(
        only_subject=("a",),
        only_reference=("b", "c"),
        unjudged=("s", "r", "t", "x", "y", "z"),
        unjudged_subject=("s", "x"),
        unjudged_reference=("r", "t", "x"),
    )
    assert notes(replace(WORSE, left_out=every), str) == [
        (
            "cases left out: 1 only in B, 2 only in A, 1 without a verdict in B,"
            " 2 without a verdict in A, 3 without a verdict in both"
        )
    ]
    assert notes(WORSE, str) == []


@pytest.mark.parametrize(
    ("made", "bounds", "said"),
    [
        (BETTER, (-0.04, 0.21), "errors could change this: anything from −4 to +21 points"),
        (BETTER, (0.04, 0.21), None),
        (WORSE, (-0.2, 0.0), "errors could change this: anything from −20 to 0 points"),
        (WORSE, (-0.2, -0.1), None),
        (EQUAL, (-0.04, 0.21), "errors could change this: anything from −4 to +21 points"),
        (EQUAL, (-0.04, 0.12), None),
        (NOTHING, (-0.5, 0.5), "errors could change this: anything from −50 to +50 points"),
        (
            early(12, Finding.BETTER, decided=True),
            None,
            "decided early: such differences look larger than they are",
        ),
    ],
)
def test_what_the_finding_may_not_survive_is_said(
    made: Comparison, bounds: tuple[float, float] | None, said: str | None
) -> None:
    assert notes(replace(made, if_errors=bounds), str) == ([] if said is None else [said])


@pytest.mark.parametrize(
    ("ratio", "line"),
    [
        (Ratio(ratio=1.8, interval=(1.5, 2.1), cases=30), "1.8 times as much (1.50 to 2.10)"),
        (
            Ratio(ratio=0.4, interval=(0.31, 0.52), cases=12),
            "0.4 times as much (0.31 to 0.52, 12 cases)",
        ),
        (Ratio(ratio=1.8, interval=(0.0, math.inf), cases=30), "1.8 times as much"),
        (
            Ratio(ratio=1.8, interval=(0.01, 30.0), cases=30),
            "1.8 times as much (too few cases for an interval)",
        ),
        (Ratio(ratio=1.0, interval=(1.0, 1.0), cases=30), "the same"),
        (Ratio(ratio=1.004, interval=(0.99, 1.02), cases=30), "about the same (0.99 to 1.02)"),
        (Ratio(ratio=2.0, interval=(1.999, 2.001), cases=30), "2 times as much"),
        (
            Ratio(ratio=1.02, interval=(0.95, 1.1), cases=30, of_totals=0.98),
            "1.02 times as much (0.95 to 1.10)",
        ),
        (
            Ratio(ratio=1.02, interval=(0.95, 1.1), cases=30, of_totals=0.9),
            "1.02 times as much (0.95 to 1.10), but in total 0.9 times as much",
        ),
        # That one case took longer says nothing about the sides.
        (Ratio(ratio=0.2, interval=(0.0, math.inf), cases=1), None),
    ],
)
def test_ratios_are_told_as_exactly_as_they_are_known(ratio: Ratio, line: str | None) -> None:
    lines = [] if line is None else [line]
    told = [f"cost: {one}" for one in lines]
    assert figure_lines(replace(EQUAL, cost=ratio), str) == told
    late = "; 2 timeouts of B and 1 of A not counted: true times are longer"
    made = replace(EQUAL, seconds=ratio, timeouts_subject=2, timeouts_reference=1)
    long = [f"time of a typical case: {one.replace('much', 'long')}{late}" for one in lines]
    assert figure_lines(made, str) == long


def test_further_results_have_a_line_each() -> None:
    rates = {"any_subject": 0.9, "any_reference": 0.8, "all_subject": 0.5, "all_reference": 0.25}
    made = replace(
        BETTER,
        score=difference(0.05, -0.01, 0.094, 0.04, adjusted_p=0.12),
        among=3,
        pass_at=(PassAtK(k=3, cases=12, **rates),),
        turned=CaseChanges(broke=tuple("abcdefg"), mended=("x", "y"), flaky=("<z>",)),
    )
    assert details(made, str) == [
        "score: +0.05 (−0.01 to +0.09, 30 cases, p = 0.12, adjusted for 3 comparisons)",
        "pass@3: 90% vs 80%; pass^3: 50% vs 25% (12 of 30 cases)",
        "regressed: a, b, c and 4 more",
        "fixed: x and y",
        "flaky: <z>",
    ]
    assert turned_lines(made, code)[2] == "flaky: <code>&#60;z&#62;</code>"
    assert list(score_line(BETTER)) == []
    assert heading("mode", str, going_on=False) == "Compared by mode"
    assert heading(None, str, going_on=True) == "Compared, so far"
    assert not_made(1) == "1 more pair of values was not compared"
    assert not_made(1200) == "1,200 more pairs of values were not compared"
    axes = {"model": "models", "category": "categories", "key": "keys", "tools": "tools"}
    assert {axis: plural(axis) for axis in axes} == axes


def test_numbers_have_a_digit_more_where_they_are_small_and_0_and_100_are_exact() -> None:
    shares = [0, 0.00001, 0.004, 0.01, 0.013, 0.0194, 0.0196, 0.02, 0.124, 0.996, 1, -0.5]
    assert [points(share) for share in shares] == [
        *("0 points", "0.1 points", "0.4 points", "1 point", "1.3 points", "1.9 points"),
        *("2 points", "2 points", "12 points", "99 points", "100 points", "50 points"),
    ]
    signed = [signed_points(share) for share in (-0.0, 1e-15, -0.004, -0.01, 0.12)]
    assert signed == ["0 points", "0 points", "−0.4 points", "−1 point", "+12 points"]
    ranges = [(0.003, 0.2077), (-0.09, 0.13), (-1, 1), (-0.996, 0.999), (-0.004, 0.0), (0.0001, 1)]
    assert [signed_range(one) for one in ranges] == [
        *("+0.3 to +21", "−9 to +13", "−100 to +100", "−99 to +99", "−0.4 to 0", "+0.1 to +100"),
    ]
    ps = [0, 0.0009, 0.001, 0.0104, 0.0349, 0.0496, 0.75, 1]
    assert [p_value(p) for p in ps] == [
        *("p < 0.001", "p < 0.001", "p = 0.001", "p = 0.01", "p = 0.035", "p = 0.05"),
        *("p = 0.75", "p = 1"),
    ]
    ratios = [0.0042, 0.4, 0.97, 1, 1.04, 1.8, 2, 2.64, 9.96, 12.3, 1234.5]
    assert [times(ratio) for ratio in ratios] == [
        *("0.0042", "0.4", "0.97", "1", "1.04", "1.8", "2", "2.6", "10", "12", "1,234")
    ]
