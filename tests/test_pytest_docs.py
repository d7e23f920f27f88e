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
PAGE = (ROOT / "docs" / "how-to" / "pytest.md").read_text()
REFERENCE = (ROOT / "docs" / "reference" / "pytest-plugin.md").read_text()
HOW = (ROOT / "docs" / "explanation" / "how-the-pytest-plugin-works.md").read_text()
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


def blocks(page: str, language: str = "text") -> list[str]:
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


@pytest.mark.parametrize("page", [PAGE, REFERENCE], ids=["how-to", "reference"])
def test_the_pages_say_how_the_stores_folder_is_chosen(page: str) -> None:
    """`--paraval-store` takes none: before a test's name nobody could tell them apart."""
    assert "`PARAVAL_STORE`" in page
    assert "`--paraval-store-at=FOLDER`" in page


def test_the_example_ends_as_the_pages_show(tmp_path: Path) -> None:
    folder = copy_of_example(tmp_path)
    flags = ("--parallel", "15", "--tb=no", "-p", "no:cacheprovider")

    (shown,) = [block for block in blocks(PAGE) if "test_on_a_busy_day" in block]
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
    (table,) = [block.splitlines() for block in blocks(PAGE) if "(no model)" in block]
    assert set(map(timeless, table)) <= set(map(timeless, report.splitlines())), report


def test_the_tests_on_the_page_pass(tmp_path: Path) -> None:
    """In parallel, with the page's own registry; its first model is simulated."""
    (registry,) = blocks(PAGE, "yaml")
    (tmp_path / "models.yaml").write_text(registry)
    (tmp_path / "pytest.ini").write_text("[pytest]\nparallel = 8\n")
    tests = blocks(PAGE, "python")
    assert len(tests) == 4
    for number, code in enumerate(tests):
        (tmp_path / f"test_block_{number}.py").write_text(code)
    printed = printed_by(tmp_path, "-W", "error", "--strict-markers")
    assert re.search(r"^=+ 12 passed in", printed, re.MULTILINE), printed
    assert "my-agent" in printed


def test_the_page_names_every_flag_key_and_mark() -> None:
    for flag, *_ in FLAGS:
        assert f"`{flag}" in REFERENCE, flag
    for key, _ in INI_KEYS:
        assert f"`{key}`" in REFERENCE, key
    for mark in entry.MARKS:
        signature = mark.partition(":")[0]
        assert f"**`{signature}`**" in REFERENCE, signature


def test_the_modules_that_the_page_names_are_there() -> None:
    for name in re.findall(r"`(\w+\.py)`", HOW):
        found = (ROOT / "src" / "paraval" / "pytest_plugin").rglob(name)
        assert len(list(found)) == 1, name


def test_the_test_that_the_page_shows_as_flaky_is_one_of_the_example() -> None:
    (node_id,) = re.findall(r"^flaky: (\S+) passed", PAGE, re.MULTILINE)
    file, _, test = node_id.partition("::")
    assert f"def {test.partition('[')[0]}(" in (EXAMPLE / file).read_text()
