"""A real browser for the tests of pages: Chromium, as the system has it, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    "--no-sandbox",  # which root has none of; the pages are our own
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HOW_TO_GET_IT = (
    "Chromium is needed to test pages: apt-get install chromium (Debian, Ubuntu),"
    " dnf install chromium (Fedora)"
)


@contextmanager
def started_browser() -> Iterator[Browser]:
    """Skips the tests where there is none; in CI, they fail."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        if os.environ.get("CI"):
            pytest.fail(HOW_TO_GET_IT)
        pytest.skip(HOW_TO_GET_IT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*_ARGUMENTS])
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, with all that it said and asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.said: list[str] = []
        self.requests: list[str] = []
        self.refused: list[str] = []
        """Requests that came to nothing, and why."""
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on(
            "requestfailed",
            lambda request: self.refused.append(f"{request.url}: {request.failure}"),
        )
        page.on("dialog", self._on_dialog)

    def _on_dialog(self, dialog: Dialog) -> None:
        self.said.append(dialog.message)
        dialog.dismiss()

    def open_all(self) -> None:
        self.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()
