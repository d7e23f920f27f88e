"""The page in a real browser: nothing of others runs, and everybody can use it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page

from paraval.records import Case, Outcome
from paraval.report.report import Report
from tests.browser import Watched, started_browser
from tests.page_kit import LargeRun, MadeRun, asking, end_of, hostile_run, plain_run, trial
from tests.test_comparing_axes import report_of

FORBIDDEN = (
    "script, img, iframe, object, embed, form, base, link, video, math, meta[http-equiv=refresh]"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Page:
    """One for all: a tab takes as long as the pages in it."""
    return browser.new_page()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    return written(hostile_run(folder), folder)


@pytest.fixture(scope="module")
def hostile_page(browser: Browser, hostile: Path) -> Watched:
    """All of it opened, in a tab of its own; for tests that leave it as it is."""
    watched = opened(browser.new_page(), hostile)
    watched.open_all()
    return watched


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(plain_run(fail_under=0.5), tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with enough cases for the details of a comparison."""
    report = report_of({"small": "PPFFFFFFFFFF", "large": "PPPPPPPPPPPP"})
    return written(report, tmp_path_factory.mktemp("compared"))


def written(report: Report, folder: Path) -> Path:
    report.write(folder / "report.html")
    return folder / "report.html"


def opened(tab: Page, path: Path, scheme: Literal["light", "dark"] = "light") -> Watched:
    """A page as it is when somebody opens it, whatever stood in the tab before."""
    tab.set_viewport_size({"width": 1000, "height": 800})
    tab.emulate_media(media="screen", color_scheme=scheme)
    tab.goto("about:blank")
    watched = Watched(tab)
    tab.goto(path.as_uri())
    return watched


# ---- nothing of others acts


def test_nothing_of_a_hostile_run_runs_and_no_request_leaves_the_page(
    hostile_page: Watched, hostile: Path
) -> None:
    watched = hostile_page
    watched.page.wait_for_timeout(200)
    assert watched.said == []
    assert watched.requests == [hostile.as_uri()]
    assert watched.page.evaluate("window.ran") is None
    assert watched.count(FORBIDDEN) == 0
    acting = """[...document.querySelectorAll('*')].flatMap(e => [...e.attributes])
        .filter(a => a.name.startsWith('on') || a.name == 'style' || a.name == 'srcdoc'
            || (a.name == 'href' && !a.value.startsWith('#'))).map(a => a.name + '=' + a.value)"""
    assert watched.page.evaluate(acting) == []
    assert watched.count("h1") == watched.count("main") == watched.count("style") == 1


def test_the_policy_would_stop_what_got_through(tab: Page, plain: Path) -> None:
    watched = opened(tab, plain)
    watched.page.evaluate(
        """document.body.insertAdjacentHTML('beforeend',
            '<p style="color:red" id=p onclick="window.ran=1">x</p>'
            + '<img src="http://127.0.0.1:9/x">');
        document.getElementById('p').click();
        const script = document.createElement('script');
        script.textContent = 'window.ran = 1';
        document.body.append(script)"""
    )
    watched.page.wait_for_timeout(100)
    assert watched.page.evaluate("window.ran") is None
    assert watched.refused == ["http://127.0.0.1:9/x: csp"]
    assert any("Content Security Policy" in said for said in watched.said)


# ---- everybody can use it


def test_no_page_scrolls_sideways(tab: Page, hostile_page: Watched, plain: Path) -> None:
    watched = opened(tab, plain)
    watched.open_all()
    for page in (watched.page, hostile_page.page):
        for width in (360, 1_600):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A case with seven variants, whose answers differ from what is expected."""
    answers = ["It is Paris."] + [f"It is Lyon, says {number}." for number in range(6)]
    trials = [
        trial(number, "france", {"model": f"m{number}"}, end_of(Outcome.FAILED, text=text))
        for number, text in enumerate(answers)
    ]
    sent = {number: (asking(f"Where? {number}"),) for number in range(7)}
    asked = [Case(id="france", input="Capital of France?", expect="It is Paris.")]
    report = Report(MadeRun(trials=trials, asked=asked, sent=sent))
    return written(report, tmp_path_factory.mktemp("beside"))


def test_columns_stand_beside_each_other_or_below_on_a_phone(tab: Page, beside: Path) -> None:
    page = opened(tab, beside).page
    page.locator(".case > summary").click()
    box = page.locator(".beside")
    places = "e => [...e.children].map(c => Math.round(c.getBoundingClientRect().x))"
    page.set_viewport_size({"width": 1_400, "height": 800})
    lefts = box.evaluate(places)
    assert lefts == sorted(set(lefts))
    assert box.evaluate("e => e.scrollWidth > e.clientWidth"), "many columns scroll in their box"
    assert page.evaluate("document.documentElement.scrollWidth") <= 1_400
    page.set_viewport_size({"width": 400, "height": 800})
    assert len(set(box.evaluate(places))) == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marked_words_are_read_and_what_was_asked_opens_by_keyboard(
    tab: Page, beside: Path, scheme: Literal["light", "dark"]
) -> None:
    page = opened(tab, beside, scheme).page
    page.locator(".case > summary").click()
    for selector in ("pre mark", "pre del"):
        assert contrast(*page.locator(selector).first.evaluate(_COLORS)) >= 4.5
    asked = page.locator(".sent").first
    asked.locator("summary").focus()
    page.keyboard.press("Enter")
    assert asked.get_by_text("Where? 0").is_visible()


def test_cases_of_every_kind_have_their_place_on_the_page(hostile_page: Watched) -> None:
    """Those with skipped trials, too: a class of the page's own once took them out of it."""
    strange = """[...document.querySelectorAll('.case, .trial, .tally, .sign')]
        .filter(e => getComputedStyle(e).position != 'static').map(e => e.className)"""
    assert hostile_page.count(".case.skip") > 20
    assert hostile_page.page.evaluate(strange) == []


def test_cases_open_by_keyboard_and_the_skip_link_comes_first(tab: Page, plain: Path) -> None:
    watched = opened(tab, plain)
    page = watched.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the result"
    page.keyboard.press("Enter")
    assert page.url.endswith("#answer")
    page.locator(".case > summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator(".case").first.get_attribute("open") is not None
    assert page.locator("pre", has_text="say one").is_visible()


def test_the_map_can_be_passed_by(tab: Page, plain: Path) -> None:
    watched = opened(tab, plain)
    page = watched.page
    link = page.get_by_role("link", name="Skip the map")
    link.focus()
    assert link.evaluate("e => getComputedStyle(e).clipPath") == "none"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('section').id") == "unpassed"


def test_a_cell_of_the_map_and_a_line_of_a_list_open_what_they_lead_to(
    tab: Page, plain: Path
) -> None:
    watched = opened(tab, plain)
    page = watched.page
    page.locator("#map td a").first.click()
    page.locator("pre", has_text="say one").wait_for(state="visible")
    page.locator("#unpassed a").last.click()
    page.get_by_text("too many requests").first.wait_for(state="attached")
    assert page.locator("#trial-3").is_visible()


def test_filters_show_the_cases_that_they_name(tab: Page, plain: Path) -> None:
    watched = opened(tab, plain)
    page = watched.page
    shown = page.locator(".case > summary > .name:visible")
    assert shown.all_text_contents() == ["one", "two", "three"]
    page.get_by_label("with failures").check()
    assert shown.all_text_contents() == ["one"]
    page.keyboard.press("ArrowRight")
    assert shown.all_text_contents() == ["two"]
    page.get_by_label("all passed").check()
    assert shown.all_text_contents() == ["three"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_their_ground(
    tab: Page, plain: Path, compared: Path, scheme: Literal["light", "dark"]
) -> None:
    watched = opened(tab, plain, scheme)
    watched.open_all()
    for selector in (".verdict", ".facts dt", "nav a", ".sign.pass", ".sign.wrong", ".sign.error",
                     ".why", ".note, .figures", ".count", "pre", ".numbers thead th", ".mark",
                     ".filter label:has(:checked)", ".answers .sign", ".unit",
                     ".lead"):  # fmt: skip
        colors = watched.page.locator(selector).first.evaluate(_COLORS)
        assert contrast(*colors) >= 4.5, selector
    colors = opened(tab, compared, scheme).page.locator(".evidence").first.evaluate(_COLORS)
    assert contrast(*colors) >= 4.5
    grounds = watched.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (contrast(rgb(grounds), [255, 255, 255]) > 10) == (scheme == "dark")


def test_readers_of_screens_find_headings_labels_and_tables(tab: Page, plain: Path) -> None:
    watched = opened(tab, plain)
    watched.open_all()
    page = watched.page
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(h => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert watched.count("html[lang]") == watched.count("header") == watched.count("main") == 1
    assert watched.count("th:not([scope])") == 0
    assert watched.count("svg:not([role=img]):not([aria-hidden=true]):not(svg svg)") == 0
    assert watched.count("svg[role=img]:not(:has(> title))") == 0
    unnamed = "[...document.querySelectorAll('input')].filter(i => !i.labels.length).length"
    assert page.evaluate(unnamed) == 0
    ids = page.evaluate("[...document.querySelectorAll('[aria-labelledby]')]"
                        ".filter(e => !document.getElementById(e.getAttribute('aria-labelledby')))"
                        ".length")  # fmt: skip
    assert ids == 0


def test_on_paper_stand_the_result_and_what_did_not_pass(
    tab: Page, plain: Path, compared: Path
) -> None:
    watched = opened(tab, plain)
    page = watched.page
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("#rates").is_visible()
    assert page.locator("#unpassed").is_visible()
    assert not page.locator("#cases").is_visible()
    assert not page.locator("nav").is_visible()
    for selector in ("h1", ".facts dt", ".unpassed a", ".why", ".numbers thead th"):
        color, ground = page.locator(selector).first.evaluate(_COLORS)
        assert (color, ground) == ([0, 0, 0], [255, 255, 255]), selector
    page = opened(tab, compared).page
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator(".evidence").first.evaluate(_COLORS) == [[0, 0, 0], [255, 255, 255]]


def test_many_trials_open_and_scroll_without_pain_and_links_land_where_they_lead(
    tab: Page, tmp_path: Path
) -> None:
    """`bench/page.py` measures 5,000 of them."""
    path = written(Report(LargeRun(number=1_500)), tmp_path)
    assert path.stat().st_size < 3_600_000
    started = time.monotonic()
    watched = opened(tab, path)
    page = watched.page
    page.evaluate("window.scrollTo({top: document.body.scrollHeight, behavior: 'instant'})")
    page.locator("footer").wait_for(state="visible")
    page.get_by_label("with failures").check()
    assert time.monotonic() - started < 20
    assert watched.count(".trial") == 1_500
    # The filter above hides neither: what a link leads to is shown.
    for link, case in (("#map tr:nth-child(91) td a", 90),):
        middle = page.locator(link).first.evaluate(_MIDDLE)
        page.mouse.click(*middle)
        name = page.locator(f".case:has(#case-{case}) > summary")
        assert name.locator("xpath=..").get_attribute("open") is not None
        # At once: a reader who is led past the place, or to a blank one, looks for it in vain.
        assert 0 <= name.evaluate("e => e.getBoundingClientRect().top") < 80
    assert page.locator("#unpassed .more").first.get_attribute("open") is None


_MIDDLE = """element => {
    element.scrollIntoView({block: 'center', behavior: 'instant'});
    const box = element.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
}"""
"""Of an element that Playwright would not click: a line has no height."""


# ---- contrast, as WCAG counts it


_COLORS = """element => {
    const parts = text => text.match(/[\\d.]+/g).map(Number);
    let ground = element;
    while (ground) {
        const color = parts(getComputedStyle(ground).backgroundColor);
        if (color.length < 4 || color[3] > 0) break;
        ground = ground.parentElement;
    }
    return [parts(getComputedStyle(element).color).slice(0, 3),
            parts(getComputedStyle(ground).backgroundColor).slice(0, 3)];
}"""


def rgb(text: str) -> list[float]:
    return [float(part) for part in text.removeprefix("rgb(").removesuffix(")").split(",")]


def contrast(one: list[float], other: list[float]) -> float:
    darker, lighter = sorted(map(_luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: list[float]) -> float:
    linear = [
        part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4
        for part in color
    ]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
