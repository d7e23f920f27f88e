"""Charts draw the figures they are given, in a markup that stays small, and say them in words."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from lxml import etree
from markupsafe import Markup

from paraval.records import AttemptRecord, Outcome
from paraval.report.compare.case_results import CaseBook
from paraval.report.compare.comparison import Comparison, Difference, Finding, Method, Side
from paraval.report.page import plots
from paraval.report.page.plots import (
    QualityCost,
    TrendPoint,
    attempt_spans,
    difference_plot,
    frontier_of,
    heat_map,
    over_time,
    rate_words,
    reach_of,
    scale_of,
    scatter,
    tick_time,
    trend,
)
from paraval.report.page.rendering import environment
from paraval.report.report import Report
from tests.comparing_kit import book_of, by_mode, trial, trials_of
from tests.page_kit import MadeRun, end_of


def drawn(macro: str, *values: Any) -> Markup:
    """What a macro of the charts' template makes of these."""
    made = getattr(environment().get_template("plots.html").module, macro)(*values)
    assert isinstance(made, Markup)
    return made


def parsed(markup: str) -> etree._Element:
    return etree.fromstring(f"<page>{markup}</page>".encode())


def with_class(markup: str, name: str) -> list[etree._Element]:
    every = parsed(markup).iter()
    return [one for one in every if name in (one.get("class") or "").split()]


def said(one: etree._Element) -> str:
    return "".join(map(str, one.itertext()))


def words(markup: str) -> list[str]:
    return [one.text or "" for one in parsed(markup).iter("desc")]


# ---- rates


def rate_bar(label: str = "a", **figures: Any) -> Markup:
    """Of a run that ended in these figures."""
    ended = replace(Report(MadeRun()).summary, **figures)
    return drawn("rate_bar", ended, label, rate_words(ended))


def test_a_bar_is_as_wide_as_its_rate_and_a_whisker_spans_its_interval() -> None:
    bars = rate_bar(pass_rate=0.875, pass_rate_interval=(0.5, 0.98), passed=35, failed=5)
    [bar] = with_class(bars, "bar")
    assert bar.get("width") == "87.5%"
    across = next(one for one in with_class(bars, "whisker") if one.get("x1") != one.get("x2"))
    assert (across.get("x1"), across.get("x2")) == ("50%", "98%")
    assert words(bars) == ["87.5% of 40 judged trials passed, interval 50–98%."]


def test_errors_are_a_hatch_from_the_worst_rate_to_the_best_and_never_a_bar_of_0() -> None:
    half = {"pass_rate": 0.5, "passed": 4, "failed": 4, "errors": 2}
    some = rate_bar("a", **half, rate_if_errors_failed=0.4, rate_if_errors_passed=0.6)
    every = rate_bar(errors=9, rate_if_errors_failed=0.0, rate_if_errors_passed=1.0)
    assert (len(with_class(some, "bar")), len(with_class(every, "bar"))) == (1, 0)
    [hatch] = with_class(some, "hatch")
    assert (hatch.get("x1"), hatch.get("x2")) == ("40%", "60%")
    [hatch] = with_class(every, "hatch")
    assert (hatch.get("x1"), hatch.get("x2")) == ("0%", "100%")
    assert words(every) == ["Nothing was judged. 9 errors could make it 0–100%."]


# ---- differences


def compared(mean: float, interval: tuple[float, float], finding: Finding) -> Comparison:
    passing = Difference(
        mean=mean,
        interval=interval,
        p=0.5,
        adjusted_p=0.5,
        method=Method.SIGN_FLIPS,
        wins=0,
        losses=0,
    )
    return Comparison(
        subject=Side(label="b"),
        reference=Side(label="a"),
        cases=9,
        confidence=0.95,
        rate_subject=None,
        rate_reference=None,
        passing=passing,
        score=None,
        finding=finding,
        detectable=None,
        if_errors=None,
        seconds=None,
        cost=None,
    )


def test_a_difference_stands_on_its_side_of_zero_and_is_filled_where_it_is_shown() -> None:
    every = [
        compared(0.12, (0.03, 0.21), Finding.BETTER),
        compared(-0.1, (-0.2, -0.01), Finding.WORSE),
        compared(0.05, (-0.1, 0.2), Finding.NOT_SHOWN),
    ]
    reach = reach_of(every)
    assert reach == 0.3
    rows = Markup().join(drawn("difference", difference_plot(one), "b", reach) for one in every)
    dots = with_class(rows, "dot")
    assert [one.get("class") for one in dots] == ["dot better", "dot worse", "dot open"]
    assert [one.get("cx") for one in dots] == ["70%", "33.33%", "58.33%"]
    assert words(rows) == [
        "+12 points, interval +3 to +21: better.",
        "−10 points, interval −20 to −1: worse.",
        "+5 points, interval −10 to +20: no difference shown.",
    ]
    assert said(parsed(drawn("difference_axis", reach))).strip() == "−30 worse0better +30"


# ---- cases against variants


def heat(book: CaseBook) -> Markup:
    return drawn("heat", heat_map(book))


@pytest.mark.parametrize(
    ("repeats", "state", "sign"),
    [
        ("PPP", "p", "✓"),
        ("FF", "x", "✗"),
        ("PFF", "f", "±"),
        ("EE", "e", "!"),
        ("S", "s", "\N{EN DASH}"),
        ("PPE", "p", "✓!"),
        ("FES", "x", "✗!"),
    ],
)
def test_a_cell_has_a_sign_beside_its_color_and_leads_to_its_case(
    repeats: str, state: str, sign: str
) -> None:
    *_, box = parsed(heat(by_mode(a=["P", repeats]))).iter("td")
    assert state in (box.get("class") or "").split()
    assert (box[0].text, box[0].get("href")) == (sign, "#case-1")


def test_a_cell_that_was_not_run_is_empty_and_leads_nowhere() -> None:
    book = book_of([trial("c0", {"m": "a"}, "P"), trial("c1", {"m": "b"}, "P")])
    ran, missing, *_ = parsed(heat(book)).iter("td")
    assert (ran.get("class"), missing.get("class"), len(missing)) == ("p", "n", 0)


def test_the_table_has_headings_for_rows_and_columns() -> None:
    table = parsed(heat(by_mode(a="P", b="P")))
    assert [one.get("scope") for one in table.iter("th")] == ["col"] * 3 + ["row"]


def headings(markup: str) -> list[list[tuple[str, str | None]]]:
    """By line: what a heading says, and how many columns it stands over."""
    head = next(parsed(markup).iter("thead"))
    return [[(said(one), one.get("colspan")) for one in line] for line in head]


def test_heads_are_nested_by_axis_and_what_all_variants_share_is_left_out() -> None:
    book = book_of(
        trial("c", {"model": model, "task": "same", "prompt": prompt}, "P")
        for model in ("gpt", "claude")
        for prompt in ("short", "long")
    )
    assert headings(heat(book)) == [
        [("model", None), ("gpt", "2"), ("claude", "2")],
        [("case / prompt", None), ("short", None), ("long", None), ("short", None), ("long", None)],
    ]


def test_long_names_are_cut_in_the_middle_where_they_tend_to_be_alike() -> None:
    names = [f"claude-3-5-sonnet-with-a-long-name-2024102{n}" for n in range(8)]
    table = heat(book_of(trial("c" * 60 + "-end", {"model": name}, "P") for name in names))
    (line,) = headings(table)
    assert [name for name, _ in line[1:3]] == ["claude…241020", "claude…241021"]
    heads = list(parsed(table).iter("th"))
    assert [one.get("title") for one in heads[1:9]] == names
    assert said(heads[9]).endswith("ccc-end")
    assert "…" in said(heads[9])


def test_a_cell_of_several_repeats_says_how_many_passed() -> None:
    flaky, single = parsed(heat(by_mode(a=["PPF"], b=["P"]))).iter("td")
    assert (said(flaky), said(single)) == ("±2/3", "✓")
    assert flaky[0].get("title") == "2 passed, 1 failed"


@pytest.mark.parametrize(
    ("variants", "cases", "tables"), [(1, 40, 4), (3, 40, 2), (3, 9, 2), (3, 8, 1), (9, 99, 1)]
)
def test_with_few_variants_the_cases_stand_in_tables_side_by_side(
    variants: int, cases: int, tables: int
) -> None:
    ends: Mapping[int, str] = dict.fromkeys(range(variants), "P" * cases)
    page = parsed(heat(book_of(trials_of("m", ends))))
    assert len(list(page.iter("table"))) == tables
    assert len(list(page.iter("td"))) == cases * variants


def test_a_table_of_5000_cells_is_light() -> None:
    book = book_of(trials_of("m", dict.fromkeys(range(10), "P" * 500)))
    assert len(heat(book).encode()) < 280_000


# ---- quality against cost


def point(label: str, usd: float, rate: float) -> QualityCost:
    return QualityCost(label=label, usd=usd, rate=rate, seconds=2.0)


def test_a_variant_stands_at_its_cost_and_pass_rate_and_the_frontier_is_a_stair() -> None:
    points = [point("dear", 0.4, 0.8), point("thrifty", 0.1, 0.8), point("best", 0.3, 0.9)]
    chart = drawn("scatter", scatter(points))
    assert [one.label for one in frontier_of(points)] == ["thrifty", "best"]
    assert "Pareto frontier: thrifty (80%, $0.10) and best (90%, $0.30)." in chart
    groups = {
        (one[0].text or "").partition(":")[0]: one[1]
        for one in parsed(chart).iter("g")
        if one[0].tag == "title"
    }
    assert {name: dot.get("class") for name, dot in groups.items()} == {
        "dear": "dot other",
        "thrifty": "dot best",
        "best": "dot best",
    }
    # From half, at 310, up to all, at 32; the costs from 0 to 0.44.
    assert float(groups["best"].get("cy") or 0) == pytest.approx(87.6)
    assert groups["best"].get("cx") == "68.18%"
    assert len(with_class(chart, "beaten")) == 2
    stair = [one for one in with_class(chart, "frontier") if (one.get("x1") or "").endswith("%")]
    assert len(stair) == 3
    assert "best: 90% passed, $0.30 per judged trial, median 2.0 s." in words(chart)[0]


def test_variants_at_one_place_are_both_on_the_frontier_and_a_worse_one_is_not() -> None:
    points = [point("a", 0.1, 0.5), point("b", 0.1, 0.5), point("c", 0.1, 0.4)]
    assert [one.label for one in frontier_of(points)] == ["a", "b"]


def test_what_was_free_is_not_drawn_against_its_cost() -> None:
    assert scatter([point(name, 0.0, 1.0) for name in "ab"]) is None


@pytest.mark.parametrize("known", [0, 1])
def test_one_variant_alone_stands_against_nothing(known: int) -> None:
    assert scatter([point("a", 0.1, 1.0)] * known) is None


# ---- how many ran over time


def at_work(*spans: tuple[float, float], held_back: Sequence[str] = ()) -> Markup:
    return drawn("over_time", over_time(spans, held_back))


def test_the_most_and_the_mean_number_at_once_are_told_with_what_held_others_back() -> None:
    limit = ["Held back: model mid: 12 requests/s found (429), for 18 s."]
    chart = at_work((5, 15), (5, 10), (10, 15), held_back=limit)
    assert words(chart) == ["Up to 2 at once, 2.0 on average, within 10.0 s."]
    assert [said(one) for one in with_class(chart, "note")] == limit


def test_the_hill_is_as_high_as_the_share_of_the_most_at_once() -> None:
    [hill] = with_class(at_work((0, 4), (2, 4)), "hill")
    steps = [float(step) for step in re.findall(r"V([\d.]+)h1", hill.get("d") or "")]
    assert len(steps) == 300
    assert set(steps[:149]) == {36.0}
    assert set(steps[151:]) == {0.0}


def test_a_single_attempt_beside_forty_is_visible() -> None:
    [hill] = with_class(at_work(*[(0, 1)] * 40, (0, 10)), "hill")
    steps = [float(step) for step in re.findall(r"V([\d.]+)h1", hill.get("d") or "")]
    assert steps[0] == 0
    assert steps[-1] < 70


def test_a_night_between_two_sessions_is_cut_out_and_told() -> None:
    chart = at_work((0, 10), (40_000, 40_010))
    assert "1.0 on average, within 20.0 s" in chart
    assert "1 pause cut out, 11 h 06 min in all." in chart
    assert "cut out" not in at_work((0, 10), (14, 20))


def test_times_that_make_no_sense_are_left_out_and_100_000_are_a_few_kilobytes() -> None:
    def lasting(started_at: float, duration_s: float) -> AttemptRecord:
        return AttemptRecord(
            index=0,
            case_id="c",
            variant={},
            repeat=1,
            number=1,
            started_at=started_at,
            folder="",
            result=end_of(Outcome.PASSED, duration_s=duration_s),
        )

    unknown = lasting(float("nan"), 1)
    assert attempt_spans([unknown, lasting(2, -1)]) == []
    assert attempt_spans([lasting(3, 0), unknown]) == [(3, 3)]
    assert "Up to 1 at once" in at_work((3, 3))
    assert len(at_work(*((n / 10, n / 10 + 5) for n in range(100_000))).encode()) < 5_000


# ---- history


def history(runs: int, series: int = 2) -> list[TrendPoint]:
    return [
        TrendPoint(
            run=f"run-{run}",
            series=f"variant {number}",
            rate=None if run == 2 else 0.5,
            interval=(0.4, 0.6),
            changed=("prompt", "model") if run == 1 else (),
        )
        for run in range(runs)
        for number in range(series)
    ]


def test_changes_are_marked_at_their_run_and_a_run_without_a_rate_breaks_the_line() -> None:
    chart = drawn("trend", trend(history(4)))
    rates = [one for one in with_class(chart, "panel") if "pass rate" in said(one)]
    assert len(rates) == 2
    assert len([one for one in rates[0].iter() if one.get("class") == "way"]) == 2
    [mark] = [one for one in rates[0].iter() if one.get("class") == "change"]
    assert mark.get("x1") == "37.5%"
    assert "run-1: prompt and model changed" in said(parsed(chart))
    assert "From 50% to 50% over 3 runs: 50%, 50%, 50%." in words(chart)


def test_a_long_history_stays_small() -> None:
    chart = drawn("trend", trend(history(500, series=80)))
    assert len(chart.encode()) < 800_000
    assert "460 older runs left out." in chart
    assert "20 variants left out." in chart


# ---- scales


def test_values_far_apart_get_a_logarithmic_axis_and_others_one_from_0() -> None:
    assert scale_of([1.0, 100.0]).is_log
    near = scale_of([2.0, 9.0])
    assert (near.low, near.is_log) == (0.0, False)
    assert scale_of([]).place(0.0) == 0.0


@pytest.mark.parametrize("most", [4, 5, 7])
def test_ticks_are_round_few_and_within_their_scale(most: int) -> None:
    dice = random.Random(most)
    for _ in range(200):
        low, high = sorted((10 ** dice.uniform(-6, 6), 10 ** dice.uniform(-6, 6)))
        scale = scale_of([low, high])
        for round_values in (plots._TIMES, plots._NUMBERS):
            ticks = scale.ticks(round_values, most)
            assert len(ticks) <= most / 0.8 + 1
            assert all(scale.low <= tick <= scale.high * (1 + 1e-9) for tick in ticks)


def test_ticks_are_written_without_needless_zeros() -> None:
    ticks = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)
    assert [tick_time(tick) for tick in ticks] == [
        "1 ms", "10 ms", "100 ms", "1 s", "10 s", "1 min", "10 min", "1 h",
    ]  # fmt: skip
