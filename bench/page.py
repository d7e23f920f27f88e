"""Figures of the page of a large run, of 5,000 real trials: `python bench/page.py`.

Writing the page is set against plainly reading the same run from its store, results and attempts,
so that the figure means the same on any machine. With Playwright and Chromium there, it is opened.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from figures import say

from paraval.report.report import Report
from paraval.store.reader import RunReader

CASES, MODELS = 500, 10
_SUITE = f"""\
name: large
cases: {{python: "large:cases"}}
target: {{python: "large:answer"}}
graders: [contains]
matrix: {{model: [{", ".join(f"m{number}" for number in range(MODELS))}]}}
"""
_MODULE = """\
import random


def cases():
    return [{"id": f"case-{n}", "input": "what?", "expect": "right"} for n in range(CASES)]


def answer(case, variant):
    luck = random.Random(f"{case.id} {variant['model']}").random()
    verdict = "right" if luck < 0.9 else "wrong"
    return "an answer of some length, as models give them\\n" * 10 + verdict
"""


def make_run(folder: Path, cases: int = CASES) -> Path:
    """The folder of a run that was really made."""
    (folder / "large.py").write_text(f"CASES = {cases}\n{_MODULE}")
    (folder / "suite.yaml").write_text(_SUITE)
    command = [sys.executable, "-m", "paraval", "run", "suite.yaml", "--progress", "none"]
    # Wrong answers miss the gate, as they should: any other end is an error of ours.
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    (run,) = (folder / ".paraval" / "runs").iterdir()
    return run


def seconds(work: Callable[[], object], rounds: int = 3) -> float:
    """The least of some rounds: what others do on the machine only adds to it."""
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


def read(run: Path) -> None:
    with RunReader(run) as reader:
        for _ in reader.results():
            pass
        for _ in reader.attempts():
            pass


def write(run: Path, page: Path) -> None:
    with RunReader(run) as reader:
        Report(reader).write(page)


def opened(page: Path) -> tuple[float, float]:
    """Seconds until it is loaded, and until a jump from the map to a case is painted."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - where it is there

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        tab = browser.new_page()
        started = time.perf_counter()
        tab.goto(page.as_uri())
        loaded = time.perf_counter()
        tab.locator("#map td a").nth(CASES * MODELS // 2).click()
        tab.screenshot()
        jumped = time.perf_counter()
        browser.close()
    return loaded - started, jumped - loaded


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        run, page = make_run(Path(temporary)), Path(temporary) / "report.html"
        reading = seconds(lambda: read(run))
        writing = seconds(lambda: write(run, page))
        say(f"reading a run of {CASES * MODELS:,} trials", f"{reading:.2f} s")
        say("  writing its page", f"{writing:.2f} s, {writing / reading:.1f} times reading")
        say("  the page", f"{page.stat().st_size / 1e6:.1f} MB")
        if importlib.util.find_spec("playwright") and shutil.which("chromium"):
            loading, jumping = opened(page)
            say("  opening it in Chromium", f"{loading:.1f} s")
            say("  from the map to a case", f"{jumping:.1f} s")


if __name__ == "__main__":
    main()
