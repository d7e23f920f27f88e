"""What the pages say of tests side by side is what happens."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from paraval.pytest_plugin import plugin as entry
from paraval.pytest_plugin.options import FLAGS, INI_KEYS
from paraval.report.report import Report
from paraval.store.store import Store
from tests.child_pytest import run_pytest

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "pytest"
PAGE = (ROOT / "docs" / "pytest.md").read_text()
README = (ROOT / "README.md").read_text()
VARYING = re.compile(r"in [\d.]+s|\d{8}-\d{6}-\w+")
DURATION = re.compile(r"\b[\d.]+ m?s\b")
COMES_AS_IT_ENDS = re.compile(r"(test_\w+\.py )?[.F]+ +\[ *\d+%\]")


def printed_by(folder: Path, *arguments: str, columns: int = 88) -> str:
    """In a terminal of this width."""
    done = run_pytest(folder, *arguments, COLUMNS=str(columns))
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def steady(text: str) -> list[str]:
    """Its lines, without those that come as tests end, and without times and names of runs."""
    lines = (VARYING.sub("#", line).strip("= ") for line in text.splitlines())
    return [line for line in lines if line not in ("", "...") and not COMES_AS_IT_ENDS.match(line)]


def blocks(page: str, language: str = "") -> list[str]:
    found: list[tuple[str, str]] = re.findall(r"```(\w*)\n(.*?)```", page, flags=re.DOTALL)
    return [block for name, block in found if name == language]


def timeless(line: str) -> str:
    """A line of a table without how long things took."""
    return " ".join(DURATION.sub("#", line).split())


def copy_of_example(tmp_path: Path) -> Path:
    """With models that answer sooner."""
    folder = tmp_path / "pytest"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    scenario = folder / "scenario.yaml"
    scenario.write_text(scenario.read_text().replace("median: 0.6", "median: 0.1"))
    return folder


@pytest.mark.parametrize("page", [README, PAGE], ids=["README", "docs"])
def test_the_pages_say_how_the_stores_folder_is_chosen(page: str) -> None:
    """`--paraval-store` takes none: before a test's name nobody could tell them apart."""
    sentence = r"`PARAVAL_STORE`,?\s+or (of )?`--paraval-store-at=FOLDER`"
    assert re.search(sentence, page)


def test_the_example_ends_as_the_pages_show(tmp_path: Path) -> None:
    folder = copy_of_example(tmp_path)
    flags = ("--parallel", "15", "--tb=no", "-p", "no:cacheprovider")

    (shown,) = [block for block in blocks(README) if "test_on_a_busy_day" in block]
    printed = printed_by(folder, *flags)
    assert set(steady(shown)) <= set(steady(printed)), printed

    page = (EXAMPLE / "README.md").read_text()
    (shown,) = blocks(page, "console")
    shown = shown.partition("\n")[2]
    printed = printed_by(folder, *flags, "--models", "all", "--paraval-store")
    assert set(steady(shown)) <= set(steady(printed)), printed
    (costs,) = [block for block in blocks(PAGE) if block.count("(simulated)") == 2]
    assert set(steady(costs)) <= set(steady(printed))

    with Store(folder / ".paraval").reader(Store(folder / ".paraval").runs()[0]) as reader:
        report = str(Report(reader))
    (shown,) = [block for block in blocks(PAGE) if "$ paraval report last" in block]
    table = shown.partition("$ paraval report last\n")[2].splitlines()[:-1]
    assert set(map(timeless, table)) <= set(map(timeless, report.splitlines())), report


def test_why_a_test_ran_alone_stands_in_its_line_and_the_summary_follows_at_once(
    tmp_path: Path,
) -> None:
    folder = copy_of_example(tmp_path)
    only = ("-k", "region or Peru", "--paraval-store")
    printed = printed_by(folder, "--parallel", "4", "-v", *only)
    (shown,) = [block for block in blocks(PAGE) if "(exclusive: " in block]
    assert shown.strip() in printed
    assert re.search(r"\[100%\]\n\n?=+ models =+\nsmall \(simulated\)  1 call", printed), printed
    assert re.search(r"=+ recorded by paraval =+\nrun ", printed), printed


def test_the_tests_on_the_page_pass(tmp_path: Path) -> None:
    """Beside each other, with the page's own registry; its first model is simulated."""
    (registry,) = blocks(PAGE, "yaml")
    (tmp_path / "models.yaml").write_text(registry)
    (tmp_path / "pytest.ini").write_text("[pytest]\nparallel = 8\n")
    tests = blocks(PAGE, "python")
    assert len(tests) == 3
    for number, code in enumerate(tests):
        (tmp_path / f"test_block_{number}.py").write_text(code)
    printed = printed_by(tmp_path, "-W", "error", "--strict-markers")
    assert re.search(r"^=+ 11 passed in", printed, re.MULTILINE), printed
    assert "my-agent" in printed


REASONS = '''
    import logging
    import os
    import random
    import signal
    import sys
    import unittest
    from unittest import mock

    import pytest
    from hypothesis import given, strategies

    COUNT = 0

    @pytest.fixture
    def patched(monkeypatch):
        monkeypatch.setattr(os, "getcwd", str)

    def test_monkeypatch(monkeypatch):
        monkeypatch.setattr(sys, "maxsize", 1)
    def test_capfd(capfd): ...
    def test_patched(patched): ...
    def test_chdir(tmp_path): os.chdir(tmp_path)
    def test_modules(): sys.modules["some_name"] = sys
    def test_seed(): random.seed(1)
    def test_signal(): signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    def test_config(): logging.basicConfig()
    def test_fork():
        if not os.fork():
            os._exit(0)
    def test_mock():
        with mock.patch("os.getcwd"): ...
    @mock.patch("os.getcwd")
    def test_decorated(getcwd): ...
    def test_global():
        global COUNT
        COUNT += 1
    def test_attribute(): sys.maxsize = sys.maxsize
    @pytest.mark.serial
    def test_serial(): ...
    class TestU(unittest.TestCase):
        @classmethod
        def setUpClass(cls): ...
        def test_class(self): ...
    class TestV(unittest.TestCase):
        def test_beside(self): ...
        def test_subtests(self):
            with self.subTest(): ...
    @given(strategies.integers())
    def test_given(number): ...
    def documented():
        """
        >>> 1
        1
        """
    def test_beside(tmp_path, capsys, caplog, recwarn, request, record_property): ...
'''
ELSEWHERE = ("uses mocker", "marked freeze_time", "it is run by flaky")
"""By plugins that are not loaded here; held by the tests of `scan` and `neighbors`."""


def test_every_reason_on_the_page_is_one_that_is_told(tmp_path: Path) -> None:
    lines = (line.removeprefix("    ") for line in REASONS.splitlines())
    (tmp_path / "test_reasons.py").write_text("\n".join(lines))
    flags = ("--parallel", "4", "-v", "--doctest-modules", "-p", "no:cacheprovider")
    printed = printed_by(tmp_path, *flags, columns=200)
    told = set(re.findall(r"\(exclusive: (.*)\) +\[", printed))
    section = PAGE.partition("## What runs alone")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!---|found)[^|]+ \| (.+) \|$", section, re.MULTILINE)
    shown = {reason for row in rows for reason in row.split("; ")}
    assert {one for one in shown if not one.startswith(ELSEWHERE)} == told
    for name in ("test_beside", "TestV::test_beside"):
        assert re.search(rf"::{name} PASSED +\[", printed), printed


def test_the_page_names_every_flag_key_and_mark() -> None:
    for flag, _ in FLAGS:
        assert f"`{flag}" in PAGE, flag
    for key, _ in INI_KEYS:
        assert f"`{key}`" in PAGE, key
    for mark in entry.MARKS:
        signature = mark.partition(":")[0]
        assert f"**`{signature}`**" in PAGE, signature


@pytest.mark.parametrize("page", ["pytest.md", "limitations.md", "how-a-run-works.md"])
def test_links_within_the_pages_lead_somewhere(page: str) -> None:
    folder = ROOT / "docs"
    for target, anchor in re.findall(r"\]\(([\w.-]*)#([\w-]+)\)", (folder / page).read_text()):
        headings = re.findall(r"^#+ (.+)$", (folder / (target or page)).read_text(), re.MULTILINE)
        anchors = {
            re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in headings
        }
        assert anchor in anchors, f"{page} links to {target}#{anchor}"


def test_the_modules_that_the_page_names_are_there() -> None:
    section = PAGE.partition("## How it works")[2]
    for name in re.findall(r"`(\w+\.py)`", section):
        found = (ROOT / "src" / "paraval" / "pytest_plugin").rglob(name)
        assert len(list(found)) == 1, name


def test_the_test_that_the_page_shows_as_flaky_is_one_of_the_example() -> None:
    (node_id,) = re.findall(r"^flaky: (\S+) passed", PAGE, re.MULTILINE)
    file, _, test = node_id.partition("::")
    assert f"def {test.partition('[')[0]}(" in (EXAMPLE / file).read_text()
