"""A project that is installed editable: what runs in a worktree imports the worktree's code.

With real virtual environments, whose editable installs are written as pip and setuptools write
them; one is made by pip itself.
"""

from __future__ import annotations

import os
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import paraval
from paraval.environment import WorktreeImports
from paraval.processes.commands import Command
from tests.race_kit import Track, make_track, scratch_of

BASE = "def answer():\n    return 42\n\n\nSECONDS = 1.0\n"
BROKEN = BASE.replace("42", "41")
FAST = BASE.replace("1.0", "0.4")
PROJECT = {
    ".gitignore": "__pycache__/\n*.json\n.venv/\n*.egg-info/\n",
    "src/pkg/__init__.py": BASE,
    "tests/test_pkg.py": (
        "import unittest\n\nimport pkg\n\n\nclass T(unittest.TestCase):\n"
        "    def test_answer(self):\n        self.assertEqual(pkg.answer(), 42)\n"
    ),
    "bench.py": (
        'import json\nimport pkg\njson.dump({"__total__": pkg.SECONDS}, open("out.json", "w"))\n'
    ),
    "pyproject.toml": (
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "pkg"\nversion = "1"\n'
    ),
}
FINDER = """
import sys
from importlib.util import spec_from_file_location
from pathlib import Path
MAPPING = {mapping!r}
NAMESPACES = {{}}

class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        for name, place in MAPPING.items():
            if fullname == name:
                return spec_from_file_location(fullname, Path(place, "__init__.py"))
        return None

def install():
    if not any(finder == _EditableFinder for finder in sys.meta_path):
        sys.meta_path.append(_EditableFinder)
"""


class Environment:
    """A virtual environment without anything in it."""

    def __init__(self, folder: Path, *, with_base: bool = False) -> None:
        venv.create(folder, with_pip=False, symlinks=True, system_site_packages=with_base)
        self.folder = folder
        self.python = str(folder / "bin" / "python")
        (self.packages,) = folder.glob("lib/python*/site-packages")

    def tests(self) -> list[str]:
        return [self.python, "-m", "unittest", "discover", "-s", "tests"]


def by_path(environment: Environment, repo: Path) -> None:
    (environment.packages / "__editable__.pkg-1.pth").write_text(f"{repo}/src\n")


def by_finder(environment: Environment, repo: Path) -> None:
    name = "__editable___pkg_1_finder"
    finder = FINDER.format(mapping={"pkg": f"{repo}/src/pkg"})
    (environment.packages / f"{name}.py").write_text(finder)
    start = f"import {name}; {name}.install()\n"
    (environment.packages / "__editable__.pkg-1.pth").write_text(start)


def by_link(environment: Environment, repo: Path) -> None:
    (environment.packages / "pkg").symlink_to(repo / "src" / "pkg")


def race(track: Track, environment: Environment, **keys: Any) -> paraval.RaceReport:
    bench = {"command": [environment.python, "bench.py"], "metric": "out.json", "quiet": 0}
    with scratch_of(track):
        return track.race(
            {"name": "broken", "files": {"src/pkg/__init__.py": BROKEN}},
            {"name": "fast", "files": {"src/pkg/__init__.py": FAST}},
            **{"test": environment.tests(), "bench": {**bench, "blocks": 3}, **keys},
        )


def assert_candidates_were_run(report: paraval.RaceReport) -> None:
    assert {one.name: one.status for one in report} == {"broken": "failed", "fast": "won"}
    speedup = report["fast"].speedup
    assert speedup is not None
    assert speedup.estimate == pytest.approx(2.5)


@pytest.mark.parametrize("install", [by_path, by_finder, by_link])
def test_a_race_runs_the_candidates_and_not_the_checkout_that_is_installed_editable(
    tmp_path: Path, install: Callable[[Environment, Path], None]
) -> None:
    track, environment = make_track(tmp_path, PROJECT), Environment(tmp_path / "venv")
    install(environment, track.repo)
    assert_candidates_were_run(race(track, environment))


def test_so_it_does_with_a_virtual_environment_in_the_repository(tmp_path: Path) -> None:
    track = make_track(tmp_path, PROJECT)
    environment = Environment(track.repo / ".venv")
    by_path(environment, track.repo)
    assert_candidates_were_run(race(track, environment))


def test_so_it_does_with_the_checkout_in_pythonpath(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track, environment = make_track(tmp_path, PROJECT), Environment(tmp_path / "venv")
    monkeypatch.setenv("PYTHONPATH", f"{track.repo}/src")
    assert_candidates_were_run(race(track, environment, pass_env=["PYTHONPATH"]))


def test_so_it_does_where_the_python_is_named_by_a_script_or_found_on_the_path(
    tmp_path: Path,
) -> None:
    track, environment = make_track(tmp_path, PROJECT), Environment(tmp_path / "venv")
    by_path(environment, track.repo)
    script = environment.folder / "bin" / "runs-tests"
    script.write_text(f"#!{environment.python}\nimport unittest\nunittest.main(None)\n")
    script.chmod(0o755)
    by_script = [str(script), "discover", "-s", "tests"]
    assert_candidates_were_run(race(track, environment, test=by_script))
    path = f"{environment.folder}/bin:{os.environ['PATH']}"
    shell = ["sh", "-c", "python -m unittest discover -s tests"]
    keys = track.keys()["env"] | {"PATH": path}
    assert_candidates_were_run(race(track, environment, test=shell, env=keys))


def test_so_it_does_after_pip_has_installed_it(tmp_path: Path) -> None:
    track = make_track(tmp_path, PROJECT)
    environment = Environment(tmp_path / "venv", with_base=True)
    pip = [environment.python, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*pip, "--disable-pip-version-check", "--no-index", "-e", str(track.repo)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"no editable install can be built here: {done.stderr[-300:]}")
    assert_candidates_were_run(race(track, environment))


def command(*argv: str, **env: str) -> Command:
    known = {"PATH": os.environ["PATH"], **env}
    return Command(argv=argv, env=known, cwd="/", stdout="/dev/null", stderr="/dev/null")


def test_the_worktree_comes_before_what_the_user_has_in_pythonpath(tmp_path: Path) -> None:
    (tmp_path / "repo" / "src").mkdir(parents=True)
    environment = Environment(tmp_path / "venv")
    by_path(environment, tmp_path / "repo")
    imports = WorktreeImports(str(tmp_path / "repo"), "sub")
    found = imports.first(command(environment.python, PYTHONPATH="lib"), "/work/tree/sub")
    assert found.env["PYTHONPATH"] == "/work/tree/src:lib"


def test_a_command_is_left_alone_where_nothing_leads_into_the_repository(tmp_path: Path) -> None:
    """A package that is called otherwise than its folder, too: no path could name it."""
    environment = Environment(tmp_path / "venv")
    finder = FINDER.format(mapping={"pkg": f"{tmp_path}/repo/src/other"})
    (environment.packages / "__editable___pkg_finder.py").write_text(finder)
    (environment.packages / "x.pth").write_text(
        "import __editable___pkg_finder as f; f.install()\n"
    )
    imports = WorktreeImports(str(tmp_path / "repo"))
    for asked in (command(environment.python), command("true"), command("/nowhere", PATH="")):
        assert imports.first(asked, "/work/tree") is asked


SUITE = """\
cases: [{{id: one, input: x}}]
target: {{command: ["{python}", "-c", "import pkg; print(pkg.__file__)"]}}
workspace: {{git: {repo}}}
graders:
  - command: ["{python}", "-c", "import os, pkg; assert pkg.__file__.startswith(os.getcwd())"]
"""


def test_commands_and_their_graders_in_worktrees_import_the_worktrees_code(tmp_path: Path) -> None:
    track, environment = make_track(tmp_path, PROJECT), Environment(tmp_path / "venv")
    by_finder(environment, track.repo)
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE.format(python=environment.python, repo=track.repo))
    with scratch_of(track):
        report = paraval.run(suite, options=paraval.Options(store=track.store))
    (trial,) = report.trials
    assert trial.outcome == "passed", trial
    assert trial.result.output is not None
    assert not trial.result.output.text.startswith(str(track.repo))
