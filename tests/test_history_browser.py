"""A history's page in a real browser: nothing of others runs, and it fits every screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from paraval.report.history.history import History
from paraval.report.history.history_formats import write_history
from tests.browser import Watched, started_browser
from tests.history_kit import entries_of, made_run
from tests.page_kit import PAYLOADS

FORBIDDEN = "script, img, iframe, object, embed, form, base, link, video, math"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two runs whose variants, suite and choice are all payloads, and one got worse."""
    good, bad = dict.fromkeys(PAYLOADS, "P" * 12), dict.fromkeys(PAYLOADS, "F" * 12)
    runs = made_run(1, good), made_run(2, bad, parts={"prompt": "x"}), made_run(3, good)
    history = History(
        suite=PAYLOADS[0], choice={PAYLOADS[1]: PAYLOADS[2]}, entries=tuple(entries_of(*runs))
    )
    path = tmp_path_factory.mktemp("history") / "history.html"
    write_history(history, [path])
    return path


@pytest.mark.parametrize("width", [360, 1600])
def test_nothing_runs_no_request_leaves_and_nothing_is_cut(
    browser: Browser, page: Path, width: int
) -> None:
    watched = Watched(browser.new_page(viewport={"width": width, "height": 800}))
    watched.page.goto(page.as_uri())
    assert watched.said == []
    assert watched.requests == [page.as_uri()]
    assert watched.page.evaluate("window.ran") is None
    assert watched.count(FORBIDDEN) == 0
    assert watched.count("h1") == watched.count("main") == 1
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
    watched.page.close()
