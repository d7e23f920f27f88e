"""`paraval view` in a real browser: it follows a live run, and nothing of others runs in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from paraval.store.store import Store
from tests.browser import Watched, started_browser
from tests.page_kit import PAYLOADS
from tests.test_view import GatedRun, colors as colors, gated as gated, hostile as hostile, served  # noqa: PLC0414 - fixtures

PATIENCE_MS = 30_000
"""A busy machine is slow; nothing here takes a second otherwise."""
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started_browser() as browser:
        yield browser


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    """Without the cookies of other tests."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    yield context.new_page()
    context.close()


def start_viewer(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "paraval", "view", "--no-open", "--store", "store"]
    process = subprocess.Popen(
        [*command, *arguments], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_a_tab_follows_a_run_through_kill_9_and_resume_and_names_a_new_viewer(
    gated: GatedRun, tab: Page
) -> None:
    gated.start()
    viewer, address = start_viewer(gated.folder)
    port = address.partition("127.0.0.1:")[2].partition("/")[0]
    try:
        watched = Watched(tab)
        tab.goto(address)
        assert "token" not in tab.url
        row = tab.locator("#rows tr")
        expect(row.locator(".state")).to_have_text("running")
        row.get_by_role("link").first.click()
        tab.evaluate("window.untouched = true")
        chips, state = tab.locator(".chip"), tab.locator("#figures .facts dd").first
        expect(chips.nth(0)).to_have_class("chip running")
        gated.answer("a")
        expect(chips.nth(0)).to_have_class("chip pass")
        gated.kill()
        expect(state).to_have_text("killed")
        expect(tab.get_by_role("button", name="Resume")).to_be_visible()
        gated.start("resume", "last")
        expect(state).to_have_text("running")
        expect(tab.get_by_role("button", name="Stop the run")).to_be_visible()
        gated.answer("b", "bad")
        expect(chips.nth(1)).to_have_class("chip wrong")
        assert watched.said == []
        viewer.kill()
        viewer.communicate()
        expect(tab.locator("#connection")).to_contain_text("Not connected")
        assert tab.evaluate("window.untouched"), "all of it without loading the page again"
        gated.answer("c")
        viewer, address = start_viewer(gated.folder, "last", "--port", port)
        expect(tab.locator("#connection")).to_contain_text("open its new address")
        tab.goto(address)
        expect(chips.nth(2)).to_have_class("chip pass")
        gated.answer("d")
        expect(tab.locator("#verdict")).to_contain_text("Gate failed: 75% (3/4)")
        expect(state).to_have_text("done")
        assert gated.end() == 1
        own = f"http://127.0.0.1:{port}/"
        assert all(url.startswith(own) for url in watched.requests)
    finally:
        viewer.kill()
        viewer.communicate()


def test_a_run_is_listed_as_soon_as_it_begins_and_stopped_after_one_question(
    gated: GatedRun, tab: Page
) -> None:
    with served(gated.folder / "store") as client:
        tab.goto(client.serving.address())
        expect(tab.locator("main")).to_contain_text("No runs yet")
        gated.start()
        expect(tab.locator("#rows tr .state")).to_have_text("running")
        gated.answer("a")
        expect(tab.locator("#rows tr")).to_contain_text("1 of 4")
        tab.locator("#rows tr a").first.click()
        tab.get_by_role("button", name="Stop the run").click()
        expect(tab.locator("h1")).to_have_text("Stop this run?")
        tab.get_by_role("button", name="Stop the run").click()
        expect(tab.locator(".notice").first).to_contain_text("asked to stop")
        assert gated.end() == 130


def test_filters_lead_to_a_case_side_by_side_and_on_to_the_next(colors: Path, tab: Page) -> None:
    with served(colors / "store") as client:
        run = Store(colors / "store").find("last~1").id
        tab.goto(client.serving.address(f"/runs/{run}"))
        names = tab.locator(".case-list .name")
        expect(names).to_have_text(["sky", "grass", "blood", "broken"])
        tab.get_by_label("Outcome").select_option("wrong")
        expect(names).to_have_text(["grass", "blood"])
        assert tab.url.endswith(f"/runs/{run}?outcome=wrong")
        tab.get_by_label("Text").fill("grass")
        tab.get_by_role("button", name="Show").click()
        expect(names).to_have_text(["grass"])
        tab.get_by_label("Text").fill("")
        tab.get_by_role("button", name="Show").click()
        expect(names).to_have_text(["grass", "blood"])
        tab.locator(".chip.wrong").nth(1).click()
        expect(tab.locator("h1")).to_have_text("grass")
        expect(tab.locator(".column")).to_have_count(2)
        second = tab.locator("#trial-5")
        assert second.evaluate("one => one.closest('details').open"), "the trial of the chip"
        expect(tab.locator(".column").nth(1)).to_contain_text("green")
        tab.keyboard.press("j")
        expect(tab.locator("h1")).to_have_text("blood")
        tab.get_by_text("Your verdict").first.click()
        tab.get_by_role("button", name="fail").first.click()
        expect(tab.get_by_text("Your verdict: contains fail").first).to_be_visible()


@pytest.mark.parametrize("width", [400, 1400])
def test_no_page_is_wider_than_the_screen(colors: Path, tab: Page, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 800})
    with served(colors / "store") as client:
        run = Store(colors / "store").find("last").id
        for path in ("/", f"/runs/{run}", f"/runs/{run}/cases/1", f"/runs/{run}/ask?do=failed"):
            tab.goto(client.serving.address("/"))
            tab.goto(client.serving.address("/").replace("/?", f"{path}?", 1).split("?token")[0])
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, path


def test_27_hostile_payloads_run_nothing_and_load_nothing(hostile: Path, tab: Page) -> None:
    assert len(PAYLOADS) == 27
    with served(hostile / "store") as client:
        run = Store(hostile / "store").find("last").id
        watched = Watched(tab)
        base = client.serving.address("/").split("/?")[0]
        tab.goto(client.serving.address(f"/runs/{run}"))
        expect(tab.locator(".chip")).to_have_count(54)
        paths = ["/", f"/runs/{run}?outcome=unpassed", f"/runs/{run}/ask?do=failed"]
        paths += [f"/runs/{run}/cases/{number}" for number in range(27)]
        for path in paths:
            tab.goto(base + path)
            watched.open_all()
            assert tab.evaluate("window.ran") is None, path
            assert tab.url == base + path
        # Without `seen`, the first update replaces all of the page.
        tab.route("**/news?*", lambda route: route.continue_(url=f"{base}/runs/{run}/news"))
        tab.goto(f"{base}/runs/{run}")
        tab.wait_for_timeout(1500)
        expect(tab.locator(".chip")).to_have_count(54)
        assert tab.evaluate("window.ran") is None
        assert all(url.startswith(base) for url in watched.requests)
        assert watched.said == []


def test_a_page_of_another_origin_cannot_use_the_viewer(colors: Path, tab: Page) -> None:
    with served(colors / "store") as client:
        tab.goto(client.serving.address())
        port = client.serving.port
        tab.goto("data:text/html,<p>elsewhere</p>")
        script = f"""async () => {{
            const own = "http://127.0.0.1:{port}/";
            const got = await fetch(own, {{credentials: "include"}}).then(() => "read", () => "no");
            const shown = await fetch(own, {{mode: "no-cors", credentials: "include"}})
                .then((answer) => answer.type, () => "no");
            return [got, shown];
        }}"""
        got, shown = tab.evaluate(script)
        assert got == "no"
        assert shown in ("no", "opaque"), "nothing that a page can read"
