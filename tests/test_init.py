"""`paraval init`: each template runs in an empty folder, offline, and ends in a comparison.

Those of agents and MCP servers run in test_examples.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from paraval.cli.commands.init import BUNDLED, TEMPLATES, bundled_files
from tests.conftest import HANGS_AFTER_S, Paraval

ROOT = Path(__file__).parents[1]


def init(name: str, folder: Path, paraval: Paraval) -> Path:
    """The folder that a template was written to, after the command said what to do next."""
    ended = paraval("init", "new", "--template", name)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ""
    words = TEMPLATES[name].run.removeprefix("python ")
    assert re.search(rf"Next:\n  cd new\n  (\S+ )?{re.escape(words)}\n", ended.stderr)
    assert len((folder / "new" / "README.md").read_text().splitlines()) > 5
    return folder / "new"


def compared(made: Path, paraval: Paraval) -> list[dict[str, Any]]:
    """The comparisons in the report of a template's run."""
    ended = paraval("run", "-j", "12", "-o", "report.json", "--progress", "none", cwd=made)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Gate passed" in ended.stdout
    comparisons: list[dict[str, Any]] = json.loads((made / "report.json").read_text())[
        "comparisons"
    ]
    return comparisons


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("models", {"model"}),
        ("prompts", {"prompt", "model"}),
        ("command", {"style"}),
    ],
)
def test_a_template_runs_offline_and_compares_its_variants(
    name: str, axes: set[str], folder: Path, paraval: Paraval
) -> None:
    made = init(name, folder, paraval)
    assert {one["axis"] for one in compared(made, paraval)} == axes


def test_the_template_of_tests_runs_and_its_report_compares_the_models(
    folder: Path, paraval: Paraval
) -> None:
    made = init("pytest", folder, paraval)
    scenario = made / "scenario.yaml"
    scenario.write_text(scenario.read_text().replace("median: 0.6", "median: 0.05"))
    words = TEMPLATES["pytest"].run.removeprefix("python ").split()
    ended = subprocess.run(
        [sys.executable, *words, "test_answers.py", "-p", "no:cacheprovider"],
        cwd=made,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "1 failed, 27 passed" in ended.stdout
    report = paraval("report", "last", cwd=made).stdout
    assert "large vs small" in report


def test_the_template_of_a_race_has_a_winner(folder: Path, paraval: Paraval) -> None:
    made = init("race", folder, paraval)
    file = made / "race.yaml"
    # One candidate, a small test, few measurements, and no waiting for a quiet machine.
    quick = file.read_text().replace("    metric:", "    blocks: 3\n    quiet: 0\n    metric:")
    file.write_text(quick)
    fast = ("--profile", "none", "--test", "{python} -c 'import toposort'")
    ended = paraval("race", "race.yaml", "candidates/heap.patch", *fast, cwd=made)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "heap won" in ended.stdout


@pytest.mark.parametrize("name", ["pytest", "race", "models"])
def test_a_template_that_needs_pytest_names_the_command_that_installs_it(
    name: str, folder: Path
) -> None:
    without = "import sys; sys.modules['pytest'] = None; from paraval.cli.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", without, "init", "new", "--template", name],
        cwd=folder,
        env={**os.environ, "PATH": "/usr/bin:/bin"},  # another Python comes first, or none
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    installs = f"\n  cd new\n  {sys.executable} -m pip install pytest  # missing here"
    assert (installs in ended.stderr) == (name != "models")
    if name == "pytest":
        assert f"\n  {sys.executable} -m pytest --parallel 15" in ended.stderr


def test_the_present_python_is_called_by_its_name(folder: Path, paraval: Paraval) -> None:
    first = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = paraval("init", "new", "--template", "pytest", env={"PATH": first})
    assert "\n  cd new\n  python -m pytest --parallel 15" in ended.stderr, "pytest is here"


SIMULATED = re.compile(r"^  \w+:\s+\{provider: loopback,[^}]*(\{[^}]*\})?\}$", re.MULTILINE)
COMMENTED = re.compile(r"^  # (\w+: \{provider)", re.MULTILINE)


@pytest.mark.parametrize("name", ["models", "prompts"])
def test_the_real_models_are_a_comment_away(name: str, folder: Path, paraval: Paraval) -> None:
    file = init(name, folder, paraval) / "suite.yaml"
    real = COMMENTED.sub(r"  \1", SIMULATED.sub("", file.read_text()))
    assert "loopback" not in real
    file.write_text(real)
    keys = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "MY_KEY"), "x")
    ended = paraval("plan", "new/suite.yaml", env=keys)
    assert ended.returncode == 0, ended.stderr
    assert "12 cases" in ended.stdout or "24 cases" in ended.stdout


def test_existing_files_are_never_overwritten(folder: Path, paraval: Paraval) -> None:
    (folder / "README.md").write_text("mine")
    (folder / "suite.yaml").write_text("mine")
    ended = paraval("init")
    assert ended.returncode == 2
    assert "suite.yaml already exists; nothing was written" in ended.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "suite.yaml"]
    (folder / "suite.yaml").unlink()
    ended = paraval("init")
    assert ended.returncode == 0
    assert "README.md already exists, and was left as it is" in ended.stderr
    assert "cd " not in ended.stderr
    assert (folder / "README.md").read_text() == "mine"
    suite = BUNDLED / "templates" / "models" / "suite.yaml"
    assert (folder / "suite.yaml").read_text() == suite.read_text(), "the default"


def test_a_misspelled_template_is_suggested_and_help_lists_all(paraval: Paraval) -> None:
    ended = paraval("init", "--template", "promts")
    assert ended.returncode == 2
    assert "unknown template 'promts', did you mean 'prompts'?" in ended.stderr
    shown = paraval("init", "--help").stdout
    for name, template in TEMPLATES.items():
        assert re.search(rf"^  {name} +{re.escape(template.about)}$", shown, re.MULTILINE)


def test_the_templates_are_in_the_package() -> None:
    """An installed paraval has no checkout to take them from."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    package = ROOT / "src" / "paraval"
    patterns = options["setuptools"]["package-data"]["paraval"]
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    for template in TEMPLATES.values():
        source = (BUNDLED / "templates" / template.folder).resolve()
        assert {source / file for file in bundled_files(source)} <= packed
