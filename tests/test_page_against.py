"""The page of a run beside its baseline, and the page of a comparison."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from paraval.records import Baseline, Case, Outcome, TrialResult
from paraval.report.baseline_gate import judge_drop
from paraval.report.compare.compare_html import versus_page
from paraval.report.compare.compare_report import ComparisonReport, write_comparison
from paraval.report.compare.comparison_text import (
    changed_cases,
    side_words,
    sides_table,
    versus_figures,
    within_run,
)
from paraval.report.compare.two_runs import (
    ComparedMetric,
    ComparisonQuestion,
    ComparisonSide,
    SideComparison,
    notices_of,
)
from paraval.report.contents import Related, RunSource
from paraval.report.page.rendering import policy
from paraval.report.report import Report
from tests.page_kit import PAYLOADS, MadeRun, end_of, hostile_exchanges, trial
from tests.test_page import Balanced, found, page_of, words_of

BASELINE = Baseline(name="20260130-120000-abcd", max_drop=0.05)
KINDS = {"+": Outcome.PASSED, "-": Outcome.FAILED, "!": Outcome.TIMEOUT}


def trials(signs: str, *models: str, names: tuple[str, ...] = ()) -> list[TrialResult]:
    """A case for each sign; each model ends alike."""
    cases = [(place, sign, model) for place, sign in enumerate(signs) for model in models or ("",)]
    return [
        trial(
            index,
            names[place] if names else f"case-{place}",
            {"model": model} if model else {},
            end_of(KINDS[sign], why=f"wrong {place}"),
        )
        for index, (place, sign, model) in enumerate(cases)
    ]


def held(now: list[TrialResult], before: list[TrialResult] | None) -> Report:
    class Stored(Related):
        def baseline(self, name: str) -> RunSource:
            if before is None:
                return super().baseline(name)
            return MadeRun(trials=before, info_with={"id": name})

    return Report(MadeRun(trials=now, info_with={"baseline": BASELINE}), Stored())


def assert_inert(text: str) -> None:
    """Names of others stand on the page, and are nothing but text."""
    page = Balanced()
    page.feed(text)
    assert page.stack == []
    assert not page.tags & {"script", "img", "iframe", "base", "form", "object"}
    assert "\x1b" not in text
    assert " regressed: passed " in words_of(text)


# ---- beside its baseline


def test_a_run_beside_its_baseline_tells_the_difference_and_links_to_what_broke() -> None:
    text = page_of(held(trials("-" * 30 + "+" * 30), trials("+" * 59 + "-")))
    (section,) = found(text, "//section[@id='against']")
    words = " ".join(section.text_content().split())
    assert "This run passes 48 points less than the baseline" in words
    assert "95% CI " in words
    assert BASELINE.name in words
    assert len(section.xpath("ul[@class='answers']/li/figure")) == 1
    assert "30 cases regressed: passed with the baseline, failed with this run" in words
    assert "1 case fixed: failed with the baseline, passed with this run" in words
    links = section.xpath(".//ul[@class='unpassed']//a/@href")
    assert links[:2] == ["#case-0", "#case-1"]
    assert len(section.xpath(".//details[@class='more']//a")) == 10
    assert all(found(text, f"//*[@id='{link[1:]}']") for link in links)
    assert found(text, "//nav//a[@href='#against']")


def test_it_stands_first_with_one_variant_and_after_the_answer_with_several() -> None:
    one = page_of(held(trials("-+++"), trials("++++")))
    two = page_of(held(trials("-+++", "a", "b"), trials("++++", "a", "b")))
    assert found(one, "//main/section/@id")[:2] == ["against", "answer"]
    assert found(two, "//main/section/@id")[:2] == ["answer", "against"]


def test_without_a_baseline_that_can_be_read_there_is_no_such_section() -> None:
    gone = held(trials("-+"), None)
    unlike = held(trials("-+", "a", "b"), trials("-+", "c", "d"))
    going_on = held(trials("-+"), trials("++"))
    going_on.run = replace(going_on.run, running=True)
    for report in (gone, unlike, going_on):
        assert not found(page_of(report), "//section[@id='against']")


def test_a_case_that_broke_is_there_also_where_the_page_has_no_room() -> None:
    report = held(trials("+" * 40 + "-" * 5), trials("+" * 45))
    text = page_of(report, largest=1)
    links = found(text, "//section[@id='against']//a/@href")
    assert links
    assert all(found(text, f"//*[@id='{link[1:]}']") for link in links)


def test_names_of_others_do_nothing_beside_a_baseline() -> None:
    signs = "-" * len(PAYLOADS)
    text = page_of(
        held(trials(signs, names=PAYLOADS), trials(signs.replace("-", "+"), names=PAYLOADS))
    )
    assert_inert(text)


# ---- two runs


def versus_of(now: list[TrialResult], before: list[TrialResult], **question: Any) -> SideComparison:
    sides = [
        ComparisonSide(label=label, name=f"run-{label}", contents=Report(MadeRun(trials=made)))
        for label, made in (("B", now), ("A", before))
    ]
    return SideComparison(sides[0], sides[1], ComparisonQuestion(**question))


def test_a_comparison_is_a_page_with_all_that_the_text_tells(tmp_path: Path) -> None:
    models = ("small", "large")
    versus = versus_of(trials("-" * 30 + "+" * 30, *models), trials("+" * 59 + "-", *models))
    ComparisonReport(versus).write(tmp_path / "c.HTML")
    text = (tmp_path / "c.HTML").read_text(encoding="utf-8")
    words = words_of(text)
    lists = changed_cases(versus, str, None)
    told = [side_words(side, str) for side in (versus.reference, versus.subject)]
    told += [*versus_figures(versus, str), *notices_of(versus, str)]
    told += [cell for row in sides_table(versus, str).rows for cell in (row.label, *row.cells)]
    told += [one.heading for one in lists]
    told += [part for one in lists for case in one.cases for part in (case.name, case.why)]
    assert [part for part in told if part not in words] == []
    assert found(text, "//p[@class='headline']/text()") == [
        "B passes 48 points less than A",
        "small: B passes 48 points less than A",
        "large: B passes 48 points less than A",
    ]
    assert len(found(text, "//ul[@class='answers']/li/figure")) == 3
    assert len(found(text, "//div[@class='plot-axis']")) == 2
    assert len(found(text, "//details[@class='more']/ul/li")) == 40, "of 60, by variant"
    assert policy() in found(text, "//meta/@content")


def test_a_case_that_changed_has_both_answers_side_by_side() -> None:
    before = [trial(0, "x", {}, end_of(Outcome.PASSED, text="It is Paris.", why="as expected"))]
    now = [trial(0, "x", {}, end_of(Outcome.FAILED, text="It is Lyon.", why="not Paris"))]
    text = versus_page(versus_of(now, before), None)
    (case,) = found(text, "//*[@id='case-0']")
    left, right = case.xpath("div[@class='beside']/div")
    assert (left.xpath("string(h3)"), right.xpath("string(h3)")) == ("A", "B")
    assert "as expected" in left.text_content()
    assert "not Paris" in right.text_content()
    assert right.xpath(".//mark/text()") == ["Lyon"]
    assert found(text, "//nav//a/@href") == ["#regressed"]
    assert found(text, "//h3[@id='regressed']")


def test_asked_for_scores_the_page_of_a_comparison_says_first_what_they_show() -> None:
    now, before = (
        [
            trial(at, f"c{at}", {}, end_of(Outcome.PASSED, score=score + at / 1000))
            for at in range(9)
        ]
        for score in (0.6, 0.9)
    )
    text = versus_page(versus_of(now, before, metric=ComparedMetric.SCORE), None)
    (first,) = found(text, "//ul[@class='answers']/li[@class='worse']")
    assert first.xpath("string(.//p[@class='headline'])") == "B scores 0.30 less than A"
    assert "95% CI −0." in first.xpath("string(.//p[@class='evidence'])")
    assert "B vs A: no difference shown" in words_of(text)


def test_the_page_of_a_comparison_says_the_gate_and_that_scores_say_no_more() -> None:
    versus = versus_of(trials("-" * 40), trials("+" * 40), metric=ComparedMetric.SCORE)
    books = versus.subject.contents.book, versus.reference.contents.book
    drop = judge_drop(*books, BASELINE)
    text = versus_page(versus, drop)
    assert drop.sentence in words_of(text)
    assert found(text, "//p[@class='verdict missed']")
    assert "score: no more information than pass and fail" in words_of(text)


def test_the_variants_of_one_run_are_a_page_too(tmp_path: Path) -> None:
    now = [
        trial(index, f"case-{index // 2}", {"model": model}, end_of(outcome))
        for index, (model, outcome) in enumerate(
            [("small", Outcome.FAILED), ("large", Outcome.PASSED)] * 20
        )
    ]
    write_comparison(tmp_path / "w.html", within_run("a run", Report(MadeRun(trials=now))))
    text = (tmp_path / "w.html").read_text(encoding="utf-8")
    assert found(text, "//p[@class='headline']/text()") == [
        "large passes 100 points more than small"
    ]
    assert "fixed: case-0, case-1" in words_of(text)


def test_texts_of_others_do_nothing_on_the_page_of_a_comparison() -> None:
    """Names, answers, reasons, and what was sent and came back."""
    sides = []
    for label, outcome in (("B", Outcome.FAILED), ("A", Outcome.PASSED)):
        made = [
            trial(at, name, {"model": model}, end_of(outcome, text=name + label, why=name))
            for at, (name, model) in enumerate(product(PAYLOADS, PAYLOADS[:3]))
        ]
        asked = [Case(id=name, input=name, expect=name) for name in PAYLOADS]
        sent = {one.index: hostile_exchanges(one.case_id) for one in made}
        report = Report(MadeRun(trials=made, asked=asked, sent=sent))
        sides.append(ComparisonSide(label=PAYLOADS[1] + label, name=label, contents=report))
    text = versus_page(SideComparison(sides[0], sides[1], ComparisonQuestion()), None)
    assert_inert(text)
    assert found(text, "//div[@class='beside']//details[@class='sent']")
    assert not found(text, "//@*[starts-with(name(), 'on')] | //@style")


def test_sides_without_a_verdict_in_common_are_a_page_too() -> None:
    for now, before in (("!!", "++"), ("", "++"), ("", "")):
        text = versus_page(versus_of(trials(now), trials(before)), None)
        assert "no case has a verdict on both sides" in words_of(text)
