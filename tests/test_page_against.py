"""The page of a run beside its baseline, and the page of a comparison."""

from __future__ import annotations

from dataclasses import replace

from paraval.records import Baseline, Outcome, TrialResult
from paraval.report.contents import Source
from paraval.report.document import Report
from tests.page_kit import PAYLOADS, MadeRun, end_of, trial
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
    def reference(_: str) -> Source:
        return MadeRun(trials=before or (), info_with={"id": BASELINE.name})

    run = MadeRun(trials=now, info_with={"baseline": BASELINE})
    return Report(run, None if before is None else reference)


# ---- beside its baseline


def test_a_run_beside_its_baseline_tells_the_difference_and_links_to_what_broke() -> None:
    text = page_of(held(trials("-" * 30 + "+" * 30), trials("+" * 59 + "-")))
    (section,) = found(text, "//section[@id='against']")
    words = " ".join(section.text_content().split())
    assert "This run passes 48 points less than the baseline" in words
    assert "95 %: " in words
    assert BASELINE.name in words
    assert section.xpath(".//*[contains(@class, 'forest')]")
    assert "30 cases broke: right with the baseline, wrong with this run" in words
    assert "1 case mended: wrong with the baseline, right with this run" in words
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
    page = Balanced()
    page.feed(text)
    assert page.stack == []
    assert not page.tags & {"script", "img", "iframe", "base", "form", "object"}
    assert "\x1b" not in text
    assert "cases broke" in words_of(text)
