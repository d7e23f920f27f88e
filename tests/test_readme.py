"""What the README shows is what the program does."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import Paraval, WriteSuite
from tests.repositories import make_repository
from tests.workspace_kit import fingerprint

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)

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


def block_with(text: str) -> str:
    (block,) = [block for _, block in BLOCKS if text in block]
    return block


def test_the_demo_prints_what_the_readme_shows(paraval: Paraval) -> None:
    printed = paraval("demo", "--progress", "lines").stdout.splitlines()
    shown = block_with("10 wrong answers").splitlines()
    verdicts = [line for line in shown if line.startswith(("  ✗", "  !"))]
    assert len(verdicts) == 12
    assert set(verdicts) <= set(printed)
    start, end = (shown.index(line) for line in ("Compared by model:", "10 wrong answers"))
    assert "\n".join(shown[start:end]) in "\n".join(printed)
    assert shown[-1] == printed[-1]


def test_the_comparison_is_told_as_the_readme_shows(paraval: Paraval) -> None:
    paraval("demo", "--progress", "none")
    printed = paraval("compare", "model=swift", "model=sage").stdout.splitlines()
    shown = block_with("7 cases mended").splitlines()
    # Run ids and times are of their day.
    told = re.compile("A: |B: |cost|median|p95|time")
    assert [line for line in shown if not told.match(line)] == [
        line for line in printed if not told.match(line)
    ]


def test_the_first_suite_is_the_one_that_init_writes() -> None:
    starter = ROOT / "src" / "paraval" / "cli" / "starter" / "suite.yaml"
    assert block_with("# A first suite") == starter.read_text()


def test_the_mistakes_are_told_as_shown(write: WriteSuite, paraval: Paraval) -> None:
    write("suite.yaml", WRONG_SUITE)
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 2
    assert ended.stderr == block_with("error: suite.yaml")


def test_the_python_example_runs(folder: Path, paraval: Paraval, write: WriteSuite) -> None:
    (code,) = (block for language, block in BLOCKS if language == "python")
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert getattr(names["report"], "exit_code") == 0  # noqa: B009 - exec hides its type


def test_the_example_on_the_python_page_runs(folder: Path) -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    with pytest.raises(SystemExit) as ended:
        exec(compile(code, "python.md", "exec"), {})
    assert ended.value.code == 0
    assert (folder / "report.json").exists()


def test_the_example_with_a_model_server_runs(folder: Path) -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    (code,) = re.findall(r"```py\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(code, "python.md", "exec"), {})


def test_the_suite_with_models_runs_as_it_stands(write: WriteSuite, paraval: Paraval) -> None:
    (suite,) = (block for language, block in BLOCKS if language == "yaml" and "gpt-oss" in block)
    write("suite.yaml", suite)
    write("cases.jsonl", '{"id": "a", "input": "say a", "expect": "a"}')
    assert paraval("run", "suite.yaml").returncode == 0
    planned = paraval("plan", "suite.yaml", "--models", "all")
    assert "At most about $" in planned.stdout
    assert "unknown" not in planned.stdout


def test_every_page_that_is_linked_exists() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_race_ends_as_the_readme_shows(folder: Path, paraval: Paraval) -> None:
    """In a repository of its own, with fewer measurements, without waiting for a quiet machine, and
    with more time for the tests of a busy one."""
    shutil.copytree(ROOT / "examples" / "race", folder / "race")
    file = folder / "race" / "race.yaml"
    bench = "  metric: {file: bench.json}\n  blocks: 5\n  quiet: 0\n"
    patient = file.read_text().replace("  timeout: 10 ", "  timeout: 40 ")
    file.write_text(re.sub(r"  metric: .*\n", bench, patient))
    repository = folder / "race" / "repository"
    make_repository(repository)
    before = fingerprint(repository)
    ended = paraval("race", str(file), "-o", "race.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads((folder / "race.json").read_text())
    told = {one["name"]: one["status"] for one in found["candidates"]}
    shown = block_with("heap-reformatted  duplicate")
    for name, status in told.items():
        assert re.search(rf"^{name} +{status.replace('_', ' ')} ", shown, re.MULTILINE), name
    assert found["winner"] == "heap"
    assert len(told) == 8
    assert fingerprint(repository) == before
