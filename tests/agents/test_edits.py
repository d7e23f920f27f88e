"""Eight agents at once: each edits its own worktree, and nothing of them is left."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.agents.conftest import Place, asking

pytestmark = pytest.mark.agents


def test_each_edit_through_a_real_tool_lands_in_its_own_worktree(place: Place) -> None:
    """Eight cases for two agents, eight at once: each kept patch holds exactly its own."""
    before = place.repository_as_it_is()
    place.write_suite(
        cases=asking(*(f"Put word{number} into note{number}.txt." for number in range(8))),
        graders=[
            {"regex": "It holds:"},
            {"diff": {"max_files": 1, "only": ["note*.txt"]}},
            {"command": ["sh", "-c", "test $(cat note?.txt | wc -l) = 1"]},
        ],
    )
    report = place.run()
    assert report.all_ended("passed"), report.outcomes
    assert report.summary["speedup"] > 2
    for trial in report.trials:
        number = trial["case"].removeprefix("case-")
        assert [file["path"] for file in trial["change"]["files"]] == [f"note{number}.txt"]
        assert trial["activity"]["tools"], trial
        _holds_only(place, trial["artifacts"]["patch"], number)
        shown = place.paraval(
            "diff", "last", "--case", trial["case"], "--variant", f"agent={_agent(trial)}"
        )
        patch = place.folder / ".paraval" / "runs" / report.data["run"]["id"]
        assert shown.stdout == (patch / trial["artifacts"]["patch"]).read_text()
    assert place.leftovers() == []
    assert place.repository_as_it_is() == before


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_agents_work_in_a_sandbox_as_they_do_without_one(place: Place) -> None:
    place.write_suite(
        cases=asking("Put inside into note.txt."),
        workspace={"git": "repository", "sandbox": True},
        graders=[{"command": ["grep", "-qx", "inside", "note.txt"]}],
    )
    report = place.run()
    assert report.all_ended("passed"), report.outcomes
    assert place.leftovers() == []


def _agent(trial: dict[str, dict[str, str]]) -> str:
    return trial["variant"]["agent"]


def _holds_only(place: Place, patch: str, number: str) -> None:
    path = next(Path(place.folder / ".paraval" / "runs").glob(f"*/{patch}"))
    lines = path.read_text().splitlines()
    added = [line for line in lines if line.startswith("+") and not line.startswith("+++")]
    assert added == [f"+word{number}"]
    applies = ["git", "apply", "--check", str(path)]
    subprocess.run(applies, cwd=place.repository, check=True)
