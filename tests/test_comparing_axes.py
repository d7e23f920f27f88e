"""The comparisons that a run's own variants make, and where its reports show them."""

from __future__ import annotations

import io
import json
import math
import random
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from wcwidth import wcswidth

from paraval.records import Scalar, StopRule
from paraval.report.compare.case_results import CaseBook
from paraval.report.compare.comparison import Comparison, Finding, Method
from paraval.report.compare.variants import comparisons_of, number_left_out
from paraval.report.formats.json import AsJson
from paraval.report.formats.json_schema import report_schema
from paraval.report.formats.run_text import AsMarkdown, TextDetail, run_text
from paraval.report.report import Report
from paraval.statistics.anytime import drawn_order
from paraval.text.tables import Page
from tests.comparing_kit import Kept, book_of, by_mode, run_info, trial, trials_of
from tests.conftest import Paraval, WriteSuite
from tests.test_report import HOSTILE

INFO = run_info()


def sides(comparison: Comparison) -> tuple[str, str]:
    return (comparison.subject.label, comparison.reference.label)


# ---- who stands against whom


def test_the_side_that_passes_more_is_the_subject_and_of_equals_the_later_one() -> None:
    (one,) = comparisons_of(by_mode(a="PPPF", b="FFFF"), INFO)
    assert (sides(one), one.axis) == (("a", "b"), "mode")
    (other,) = comparisons_of(by_mode(a="FFFF", b="PPPF"), INFO)
    assert sides(other) == ("b", "a")
    (equal,) = comparisons_of(by_mode(a="PF", b="FP"), INFO)
    assert sides(equal) == ("b", "a")
    assert equal.subject.choice == {"mode": "b"}


def test_up_to_four_values_all_pairs_are_compared_and_holm_makes_up_for_them() -> None:
    three = comparisons_of(by_mode(a="PPPPPPPP", b="FFFFFFFF", c="PPFFFFFF"), INFO)
    assert [sides(one) for one in three] == [("a", "b"), ("a", "c"), ("c", "b")]
    assert [one.among for one in three] == [3, 3, 3]
    for one in three:
        assert one.passing is not None
        assert one.passing.adjusted_p >= one.passing.p
    assert three[0].finding is Finding.BETTER


def test_more_values_are_each_held_against_the_first_better_or_worse() -> None:
    ends: dict[Scalar, Iterable[str]] = dict.fromkeys("bcdef", "F" * 20)
    made = comparisons_of(book_of(trials_of("model", {"a": "P" * 20, **ends})), INFO)
    assert [sides(one) for one in made] == [(name, "a") for name in "bcdef"]
    assert {one.finding for one in made} == {Finding.WORSE}


def test_other_axes_are_held_equal_and_a_case_stays_one_pair() -> None:
    """Large is ahead in one mode and behind in the other: that is no difference of the models."""
    passes = {("small", "x"): "PPPP", ("large", "x"): "FFFF"}
    passes |= {("small", "y"): "FFFF", ("large", "y"): "PPPP"}
    book = book_of(
        trial(f"c{n}", {"model": model, "mode": mode}, end)
        for (model, mode), ends in passes.items()
        for n, end in enumerate(ends)
    )
    models, modes = comparisons_of(book, INFO)
    assert (models.axis, dict(models.over), models.cases) == ("model", {"mode": 2}, 4)
    assert models.passing is not None
    assert (models.passing.mean, models.passing.method) == (0.0, Method.SIGN_FLIPS)
    assert dict(modes.over) == {"model": 2}


def test_a_setting_counts_where_it_is_judged_on_both_sides() -> None:
    book = book_of(
        trial("c0", {"model": model, "mode": mode}, end)
        for (model, mode), end in zip(product("sl", "xy"), "PEFF", strict=True)
    )
    models, _ = comparisons_of(book, INFO)
    assert models.passing is not None
    assert models.passing.mean == 1.0
    assert models.if_errors == (0.5, 1.0)


def test_variants_that_differ_in_two_axes_are_not_taken_for_a_comparison_of_either() -> None:
    variants = ({"model": "s", "mode": "x"}, {"model": "l", "mode": "y"})
    assert comparisons_of(book_of(trial("c0", one, "P") for one in variants), INFO) == ()


@pytest.mark.parametrize("book", [CaseBook(), by_mode(a="PF"), book_of([trial("c", {}, "P")])])
def test_one_variant_or_none_makes_no_comparison(book: CaseBook) -> None:
    assert comparisons_of(book, INFO) == ()
    assert number_left_out(book) == 0


def test_values_that_python_holds_equal_are_compared_with_one_another() -> None:
    values: list[Scalar] = [1, True, "1", 1.0]
    book = book_of(trial("c0", {"x": value}, "P") for value in values)
    assert len(comparisons_of(book, INFO)) == 6


def test_a_large_axis_does_not_crowd_out_a_small_one_and_what_is_left_out_is_counted() -> None:
    book = book_of(
        trial(case, {"model": f"m{model}", "mode": mode}, end)
        for case, end in (("c0", "P"), ("c1", "F"))
        for model in range(50)
        for mode in "xy"
    )
    made = comparisons_of(book, INFO)
    assert len(made) == 40
    assert [one.axis for one in made].count("mode") == 1
    assert number_left_out(book) == 10


# ---- runs that stop early


def stopped_run(ends: Mapping[str, str], confidence: float = 0.95) -> Comparison:
    """Cases in drawn order: what each came to with a and b."""
    rule = replace(INFO, stop=StopRule(confidence=confidence))
    cases = drawn_order([f"c{n}" for n in range(len(ends["a"]))], INFO.seed)
    book = book_of(
        trial(case, {"mode": mode}, told[place])
        for place, case in enumerate(cases)
        for mode, told in ends.items()
    )
    (one,) = comparisons_of(book, rule)
    return one


def test_a_run_that_may_stop_makes_only_claims_that_hold_at_any_time() -> None:
    one = stopped_run({"a": "F" * 8 + "S" * 12, "b": "P" * 8 + "S" * 12})
    assert one.passing is not None
    assert one.stopped is not None
    assert one.passing.method is Method.ANYTIME
    assert one.passing.p == pytest.approx(9 / 256)
    assert (one.stopped.used, one.stopped.planned, one.stopped.decided) == (8, 20, True)
    assert (sides(one), one.finding, one.cases) == (("b", "a"), Finding.BETTER, 8)
    assert (one.score, one.detectable) == (None, None)
    assert one.seconds is not None
    assert one.seconds.interval == (0.0, math.inf)


def test_only_the_cases_before_the_first_hole_count() -> None:
    one = stopped_run({"a": "FFFSFFFFF", "b": "PPPPPPPPP"})
    assert one.stopped is not None
    assert (one.stopped.used, one.cases) == (3, 3)
    assert one.finding is Finding.NOT_SHOWN
    passed_over = stopped_run({"a": "FFFEFFFFF", "b": "PPPPPPPPP"})
    assert passed_over.stopped is not None
    assert (passed_over.stopped.used, passed_over.finding) == (8, Finding.BETTER)


def test_a_stopped_comparison_without_any_pair_claims_nothing() -> None:
    one = stopped_run({"a": "SSS", "b": "SSS"})
    assert one.passing is None
    assert one.stopped is not None
    assert one.stopped.used == 0


# ---- in reports


def report_of(ends: Mapping[Scalar, Iterable[str]], axis: str = "mode", **info: Any) -> Report:
    return Report(Kept(trials_of(axis, ends), **info))


def shown(report: Report, width: int = 80, *, unicode: bool = True) -> str:
    return run_text(report, Page(width=width, color=False, unicode=unicode))


def written(report: Report, form: AsJson | AsMarkdown) -> str:
    file = io.StringIO()
    form.write(report, file)
    return file.getvalue()


def test_the_terminal_shows_the_comparison_between_the_table_and_the_lists() -> None:
    report = report_of({"without-mcp": "F" * 8 + "P" * 12, "with-mcp": "P" * 19 + "F"})
    blocks = shown(report).split("\n\n")
    starts = ("variant", "Compared by mode (95% confidence interval):\n", "9 failed")
    assert all(map(str.startswith, blocks, starts))
    colored = run_text(report, Page(width=80, color=True, unicode=True))
    assert "\x1b[32m  +35 points (+5 to +58)\x1b[0m  better" in colored
    verbose = run_text(report, Page(), TextDetail(verbose=True))
    assert "\n    20 cases, p = 0.021\n" in verbose


def test_a_run_of_one_variant_shows_nothing_new() -> None:
    report = report_of({"only": "PPF"})
    assert "ompared" not in shown(report) + written(report, AsMarkdown())
    assert report.to_dict()["comparisons"] == []


def test_a_run_that_goes_on_says_so() -> None:
    report = report_of({"a": "PPF", "b": "FFF"}, running=True)
    assert "Compared by mode, so far:" in shown(report)
    assert "### Compared by <code>mode</code>, so far" in written(report, AsMarkdown())


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("unicode", [True, False])
def test_hostile_names_keep_to_their_lines_and_act_on_nothing(width: int, unicode: bool) -> None:
    text = shown(report_of(dict.fromkeys(HOSTILE, "PFE")), width, unicode=unicode)
    assert "Compared by mode:" in text
    assert text.isascii() or unicode
    assert "\x1b" not in text
    for line in text.split("\n"):
        assert wcswidth(line) <= width or "more: paraval " in line


def test_of_many_comparisons_twelve_are_shown_and_the_way_to_the_others() -> None:
    report = report_of({f"m{n:02}": "PF" * 6 for n in range(60)})
    text = shown(report)
    assert len(re.findall(r"\n  m\d\d vs m00  0 points .*  no difference shown", text)) == 12
    assert "  … and 28 more: paraval compare 20260131-120000-abcd\n" in text
    assert "  19 more pairs of values were not compared." in text
    markdown = written(report, AsMarkdown())
    assert "19 more pairs of values were not compared." in markdown
    assert "more: <code>paraval compare 20260131-120000-abcd</code>" in markdown


def test_markdown_fits_a_comment_whatever_is_compared() -> None:
    nasty = "<&>|`" * 60
    trials = [
        trial(f"{nasty}{case}", {f"{nasty}a": f"{nasty}{value}", f"{nasty}b": other}, end)
        for case, (value, other) in product(range(40), product(range(12), range(3)))
        for end in "FE"
    ]
    trials += [
        replace(one, result=replace(one.result, error=replace(one.result.error, message=why)))
        for number in range(8)
        for one in [trial("s", {}, "S")]
        if one.result.error and (why := f"{nasty}{number}")
    ]
    text = written(Report(Kept(trials, suite=nasty)), AsMarkdown())
    assert len(text) < 65_536
    assert "### Compared by" in text


def test_json_tells_every_field_of_a_comparison() -> None:
    report = report_of({"a": ["PP", "PF", "EE"], math.nan: ["FF", "PP", "PP"]})
    (told,) = json.loads(written(report, AsJson()))["comparisons"]
    (made,) = report.comparisons
    unreported = {"spread", "are_scores_partial", "passed_subject", "passed_reference"}
    assert set(told) == {*made.__dataclass_fields__, "sentence"} - unreported
    assert told["reference"]["choice"] == {"mode": "nan"}
    assert told["sentence"] == "a passed 3/4, mode=nan 2/4; 2 cases are too few to generalize"
    assert set(told) == set(report_schema()["$defs"]["ComparisonEntry"]["properties"])


def test_an_interval_without_an_end_is_null_in_json() -> None:
    (told,) = report_of({"a": "P", "b": "F"}).to_dict()["comparisons"]
    assert told["seconds"] == {"ratio": 1.0, "interval": [0.0, None], "cases": 1, "of_totals": 1.0}


# ---- many cases


def test_ten_thousand_cases_with_four_variants_are_compared_in_seconds() -> None:
    chance = random.Random(1)
    variants = [{"model": name} for name in "abcd"]
    ends = {end: [trial("", one, end) for one in variants] for end in "PF"}
    book = book_of(
        replace(ends["PF"[chance.random() < 0.3]][number], case_id=f"c{case}")
        for case in range(10_000)
        for number in range(4)
    )
    spent = []
    for _ in range(2):  # the machine may be busy with something else
        started = time.process_time()
        assert len(comparisons_of(book, INFO)) == 6
        spent.append(time.process_time() - started)
        if spent[-1] < 5:
            break
    assert min(spent) < 5


def test_numbers_and_booleans_are_shown_with_the_name_of_their_axis(
    write: WriteSuite, paraval: Paraval
) -> None:
    write(
        "suite.yaml",
        """
        cases: [{id: a, expect: "0.7"}, {id: b, expect: "0.7"}]
        matrix: {temp: [0.0, 0.7], deep: [true], size: [small]}
        target: {command: [echo, "{temp} {deep} {size}"]}
        graders: [contains]
        """,
    )
    ended = paraval("run", "suite.yaml", "--progress", "lines")
    assert "a · temp=0.0 · deep=true · small" in ended.stderr
    assert "temp=0.7 · deep=true · small" in ended.stdout
    assert "temp=0.7 vs temp=0.0" in ended.stdout
    shown = paraval("show", "--case", "a", "--variant", "temp=0.7")
    assert "temp=0.7" in shown.stdout
