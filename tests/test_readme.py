"""What the README, the tutorial and the pages on comparisons and races show is what is printed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from tests.conftest import Paraval, WriteSuite
from tests.repositories import make_repository
from tests.workspace_kit import fingerprint

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TIMES = re.compile(r"[\d.]+ (?:ms|s)\b\+?|[\d.]+×| +")


WRONG_SUITE = """\
name: greetings
cases:
  - {id: hello, input: Say hello., expect: hello}
matrix:
  model: [small, large]
target:
  command: [python3, agent.py, --model, "{modle}", "{input}"]
  tiemout: 60
graders: [contain]
limits:
  parallel: many
"""


def block_with(text: str, page: Path) -> str:
    blocks: list[str] = re.findall(r"```\w*\n(.*?)```", page.read_text(), flags=re.DOTALL)
    (block,) = [block for block in blocks if text in block]
    return block


def timeless(line: str) -> str:
    return TIMES.sub(" ", line)


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 1500


def test_the_demo_prints_what_the_readme_shows(paraval: Paraval) -> None:
    printed = paraval("demo", "--progress", "none").stdout.splitlines()
    shown = block_with("sage vs swift", ROOT / "README.md").splitlines()
    assert {timeless(line) for line in shown} - {"..."} <= set(map(timeless, printed))
    assert shown[-1] == printed[-1]


def test_the_tutorial_ends_as_it_shows(folder: Path, paraval: Paraval) -> None:
    page = DOCS / "tutorial.md"
    paraval("init", "--template", "prompts")
    third = folder / "prompts" / "warm.md"
    for shown_by in ("20/24", "warm vs"):
        printed = paraval("run", "--progress", "none").stdout.splitlines()
        shown = block_with(shown_by, page).splitlines()
        steady = [line for line in shown if line != "..." and "times as" not in line]
        assert set(map(timeless, steady)) <= set(map(timeless, printed))
        third.write_text(block_with("glad to", page))


def test_the_comparison_is_as_the_page_shows(folder: Path, paraval: Paraval) -> None:
    page = DOCS / "how-to" / "compare-runs.md"
    (folder / "triage.py").write_text(block_with("def solve", page))
    (folder / "suite.yaml").write_text(block_with("name: triage", page))
    paraval("run", "suite.yaml", "--progress", "none")
    paraval("run", "suite.yaml", "--progress", "none", env={"PROMPT": "new"})
    printed = paraval("compare").stdout.splitlines()
    # Run ids and times are of their day.
    varying = re.compile(r"before|after:|after   |Everything about|\.\.\.")
    shown = block_with("after passes", page).splitlines()
    assert {line for line in shown if not varying.match(line)} <= set(printed)


def test_the_mistakes_are_reported_as_shown(write: WriteSuite, paraval: Paraval) -> None:
    write("suite.yaml", WRONG_SUITE)
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 2
    assert ended.stderr == block_with("error: suite.yaml", DOCS / "tutorial.md")


def test_the_race_ends_as_its_page_shows(folder: Path, paraval: Paraval) -> None:
    """In a repository of its own, with fewer measurements, without waiting for a quiet machine."""
    shutil.copytree(ROOT / "examples" / "race", folder / "race")
    file = folder / "race" / "race.yaml"
    bench = "    metric: {file: bench.json}\n    blocks: 5\n    quiet: 0\n"
    file.write_text(re.sub(r"    metric: .*\n", bench, file.read_text()))
    repository = folder / "race" / "repository"
    make_repository(repository)
    before = fingerprint(repository)
    ended = paraval("race", str(file), "-o", "race.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads((folder / "race.json").read_text())
    statuses = {one["name"]: one["status"] for one in found["candidates"]}
    shown = block_with("heap-reformatted  duplicate", DOCS / "how-to" / "race-code-changes.md")
    for name, status in statuses.items():
        assert re.search(rf"^{name} +{status.replace('_', ' ')} ", shown, re.MULTILINE), name
    assert found["winner"] == "heap"
    assert len(statuses) == 8
    assert fingerprint(repository) == before
