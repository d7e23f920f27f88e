"""Candidates that mean harm, or do it: in whole races, beside one that is right and must win.

What no sandbox keeps from happening is at least told. Each candidate of a race here is the subject
of a test; that nothing is left of any of them, and the user's repository is what it was, byte for
byte, is looked at after every race (`race_kit`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from paraval.racing.report.standings import CandidateStanding

import paraval
from paraval.processes.sandbox import why_no_sandbox
from tests.race_kit import (
    PROJECT,
    Candidate,
    Track,
    make_track,
    scratch_of,
    telling,
    track_fixture,  # noqa: F401 - a fixture, used by its name
    whose_benchmark_runs,
    whose_test_runs,
)

LOG_BYTES = 20 << 20
"""What is kept of a flood is less."""
FORKS = "for i in $(seq 50); do sleep 600 & done; (setsid sleep 600 &)"
FLOODS = "yes 0123456789012345678901234567890123456789 | head -c 40000000"
TIMEOUT_S = 6
"""Of a command: a flood is through in time on a busy machine, too."""
KILLS = "kill -KILL 0"
BENCH = {"command": ["sh", "bench.sh"], "metric": "out.json", "quiet": 0, "blocks": 3}
GONE = 'top=$PWD; cd "$TMPDIR"; rm -rf "$top"'
"""What follows it can write where it is, whoever runs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raced:
    """A race that is over."""

    track: Track
    report: paraval.RaceReport
    seconds: float

    def __getitem__(self, name: str) -> CandidateStanding:
        return self.report[name]


def raced(folder: Path, *candidates: Candidate, **keys: Any) -> Iterator[Raced]:
    track = make_track(folder)
    with scratch_of(track):
        began = time.monotonic()
        report = track.race(*candidates, **keys)
        yield Raced(track=track, report=report, seconds=time.monotonic() - began)


def is_told(one: CandidateStanding, words: str) -> bool:
    return any(words in flag for flag in (*one.flags, one.reason))


# ---- while its tests run


@pytest.fixture(name="tested", scope="module")
def tested_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raced]:
    yield from raced(
        tmp_path_factory.mktemp("tested"),
        whose_test_runs("hangs", "sleep 600"),
        whose_test_runs("deaf", "trap '' TERM INT HUP; while :; do sleep 0.2; done"),
        whose_test_runs("forks", FORKS),
        whose_test_runs("floods", FLOODS),
        whose_test_runs("kills", KILLS),
        whose_test_runs("deletes", GONE),
        whose_test_runs("moves", 'mv "$PWD" "$PWD.old"; mkdir "$PWD"'),
        whose_test_runs("links", 'top=$PWD; cd ..; mv "$top" old; ln -s /etc "$top"'),
        whose_test_runs("rewrites", "echo exit 0 >check.sh; echo 1 >>bench.sh"),
        whose_test_runs(
            "settings", "git config core.hooksPath /tmp; echo x >.git/hooks/post-commit"
        ),
        whose_test_runs("shuts", "chmod 0 . .git; exec >&- 2>&- <&-"),
        telling("right", 0.4),
        test={"command": ["sh", "check.sh"], "timeout": TIMEOUT_S},
        limits={"parallel": 4},
    )


def test_the_right_one_wins_beside_all_of_them(tested: Raced) -> None:
    assert tested.report.winner is not None
    assert tested.report.winner.name == "right"
    assert tested.seconds < 60


@pytest.mark.parametrize("name", ["hangs", "deaf"])
def test_a_test_that_hangs_is_ended_in_time(tested: Raced, name: str) -> None:
    assert tested[name].status == "timeout"
    assert f"timed out after {TIMEOUT_S} s" in tested[name].reason


def test_processes_that_a_test_leaves_are_ended_with_it(tested: Raced) -> None:
    """Those too that left its session; that none is there any more is looked at for all."""
    assert tested["forks"].status == "accepted"
    assert any("processes" in note for note in tested["forks"].notes)


def test_a_flood_on_stdout_is_read_to_its_end_and_kept_in_part(tested: Raced) -> None:
    assert tested["floods"].status == "accepted"
    sizes = [path.stat().st_size for path in Path(tested.report.run.folder).rglob("stdout.log")]
    assert 0 < max(sizes) < LOG_BYTES


def test_a_test_that_kills_its_process_group_has_crashed(tested: Raced) -> None:
    """And nothing else: neither the engine nor another candidate is in that group."""
    assert tested["kills"].status == "crashed"
    assert "SIGKILL" in tested["kills"].reason


@pytest.mark.parametrize("name", ["deletes", "moves", "links"])
def test_a_worktree_that_is_deleted_moved_or_replaced_is_told(tested: Raced, name: str) -> None:
    assert tested[name].status == "failed"
    assert is_told(tested[name], "moved, deleted or replaced its worktree")


def test_one_that_rewrites_its_tests_while_they_run_is_not_right(tested: Raced) -> None:
    assert tested["rewrites"].status == "failed"
    assert is_told(tested["rewrites"], "changed check.sh while it ran")
    assert is_told(tested["rewrites"], "changed bench.sh while it ran")


def test_one_that_changes_the_settings_of_git_while_it_runs_is_not_right(tested: Raced) -> None:
    assert tested["settings"].status == "failed"
    assert is_told(tested["settings"], ".git")


def test_a_worktree_that_is_shut_is_opened_again(tested: Raced) -> None:
    assert tested["shuts"].status in ("failed", "accepted")


# ---- while its benchmark runs


@pytest.fixture(name="timed", scope="module")
def timed_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raced]:
    yield from raced(
        tmp_path_factory.mktemp("timed"),
        whose_benchmark_runs("hangs", "sleep 600"),
        whose_benchmark_runs("forks", FORKS),
        whose_benchmark_runs("floods", FLOODS),
        whose_benchmark_runs("kills", KILLS),
        whose_benchmark_runs("deletes", GONE),
        whose_benchmark_runs("keeps", "echo 42 >answer.kept"),
        telling("right", 0.4),
        bench={**BENCH, "timeout": TIMEOUT_S},
    )


def test_the_right_one_wins_whatever_the_benchmarks_of_others_do(timed: Raced) -> None:
    assert timed.report.winner is not None
    assert timed.report.winner.name == "right"
    assert timed.report["right"].speedup is not None
    assert timed.report["right"].speedup.estimate == pytest.approx(2.5)
    assert timed.report.standings.baseline.seconds["__total__"] == 1.0


def test_a_benchmark_that_hangs_is_ended_in_time(timed: Raced) -> None:
    assert timed["hangs"].status == "timeout"
    assert f"timed out after {TIMEOUT_S} s" in timed["hangs"].reason


def test_a_benchmark_that_leaves_processes_cannot_win(timed: Raced) -> None:
    """What they do is not in the time that it took."""
    assert timed["forks"].status == "not_shown"
    assert is_told(timed["forks"], "leaves processes running")


def test_a_benchmark_may_print_as_much_as_it_likes(timed: Raced) -> None:
    assert timed["floods"].status == "accepted"


@pytest.mark.parametrize(("name", "status"), [("kills", "crashed"), ("deletes", "failed")])
def test_a_benchmark_that_destroys_its_own_ground_is_out(
    timed: Raced, name: str, status: str
) -> None:
    assert timed[name].status == status
    assert timed[name].reason.startswith("the candidate's benchmark: ")


def test_a_benchmark_that_writes_down_its_answers_cannot_win(timed: Raced) -> None:
    assert timed["keeps"].status == "not_shown"
    assert is_told(timed["keeps"], "leaves answer.kept")


# ---- by what it changes

EDITS: dict[str, dict[str, str | None]] = {
    "edits tests/test_a.py": {"tests/test_a.py": "def test_a(): pass\n"},
    "deletes tests/test_a.py": {"tests/test_a.py": None},
    "adds conftest.py": {"conftest.py": "collect_ignore = ['tests']\n"},
    "adds sub/conftest.py": {"sub/conftest.py": ""},
    "edits check.sh": {"check.sh": "exit 0\n"},
    "edits bench.sh": {"bench.sh": "echo '{\"__total__\": 0.001}' >out.json\n"},
    "adds sitecustomize.py": {"sitecustomize.py": ""},
    "adds sitecustomize/__init__.py": {"sitecustomize/__init__.py": ""},
    "adds .pytest.toml": {".pytest.toml": "[pytest]\naddopts = ['-p', 'cheat']\n"},
    "edits pyproject.toml": {"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-p cheat'\n"},
    "deletes setup.cfg": {"setup.cfg": None},
    "deletes pytest.toml": {"pytest.toml": None, "renamed.toml": "[pytest]\n"},
    "adds .gitattributes": {".gitattributes": "* filter=evil\n"},
}
ESCAPES: dict[str, Candidate] = {
    "folder-above": {"files": {"../outside": "x\n"}},
    "absolute": {"files": {"/outside": "x\n"}},
    "git-config": {"files": {".git/config": "[core]\n\thooksPath = .\n"}},
    "git-hook": {"files": {"sub/.GIT/hooks/post-checkout": "#!/bin/sh\n"}},
    "patch-above": {
        "patch": "--- /dev/null\n+++ b/../outside\n@@ -0,0 +1 @@\n+x\n",
    },
    "patch-git": {"patch": "--- /dev/null\n+++ b/.git/hooks/x\n@@ -0,0 +1 @@\n+x\n"},
    "through-a-link": {
        "patch": "diff --git a/out b/out\nnew file mode 120000\n--- /dev/null\n+++ b/out\n"
        "@@ -0,0 +1 @@\n+..\n\\ No newline at end of file\n"
        "diff --git a/out/outside b/out/outside\nnew file mode 100644\n--- /dev/null\n"
        "+++ b/out/outside\n@@ -0,0 +1 @@\n+x\n",
    },
}
LINKS = {
    "link-out": "../../../outside",
    "link-absolute": "/etc/passwd",
}


def link_to(target: str) -> str:
    return (
        "diff --git a/leads b/leads\nnew file mode 120000\n--- /dev/null\n+++ b/leads\n"
        f"@@ -0,0 +1 @@\n+{target}\n\\ No newline at end of file\n"
    )


@pytest.fixture(name="edited", scope="module")
def edited_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raced]:
    folder = tmp_path_factory.mktemp("edited")
    settings = {"pyproject.toml": "", "setup.cfg": "[tool:pytest]\n", "pytest.toml": "[pytest]\n"}
    tests = {"tests/test_a.py": "def test_a():\n    assert True\n"}
    track = make_track(folder, {**PROJECT, **settings, **tests})
    with scratch_of(track):
        report = track.race(
            *({"name": words, "files": files} for words, files in EDITS.items()),
            *({"name": name, **candidate} for name, candidate in ESCAPES.items()),
            *({"name": name, "patch": link_to(target)} for name, target in LINKS.items()),
            telling("right", 0.4),
        )
        yield Raced(track=track, report=report, seconds=0.0)


@pytest.mark.parametrize("words", EDITS)
def test_one_that_changes_what_judges_it_is_no_candidate(edited: Raced, words: str) -> None:
    assert edited[words].status == "invalid"
    assert words in edited[words].flags


@pytest.mark.parametrize("name", ESCAPES)
def test_one_that_would_write_outside_of_the_repository_is_no_candidate(
    edited: Raced, name: str
) -> None:
    assert edited[name].status == "invalid"
    assert edited[name].reason
    assert not list(edited.track.folder.rglob("outside"))


@pytest.mark.parametrize("name", LINKS)
def test_a_link_that_leads_out_is_told(edited: Raced, name: str) -> None:
    assert is_told(edited[name], "makes leads a link to outside the repository")


def test_the_right_one_wins_beside_those_that_cheat(edited: Raced) -> None:
    assert edited.report.winner is not None
    assert edited.report.winner.name == "right"


# ---- by what it does to the user's own repository


REACHES = {
    "new.txt": "echo x >{repo}/new.txt",
    "answer": "echo 41 >{repo}/answer",
    ".git/refs/heads/mine": "git -C {repo} branch mine",
    ".git/config": "git -C {repo} config user.name mine",
    ".git/hooks/pre-commit": "echo exit 1 >{repo}/.git/hooks/pre-commit",
    "the index": "git -C {repo} rm -q --cached bench.sh",
    "through-a-link": "ln -s {repo} out; echo x >out/through-a-link",
}
"""What is changed, and how."""


def test_who_writes_to_the_users_repository_is_flagged_and_nobody_else(track: Track) -> None:
    """No sandbox is asked for, so that nothing keeps them from that; but it is told. One runs after
    the other here: of those that run at once, all would be told of."""
    codes = {f"reaches-{n}": code for n, code in enumerate(REACHES.values())}
    candidates = [
        *(
            whose_test_runs(name, f"{code.format(repo=track.repo)}; exit 1")
            for name, code in codes.items()
        ),
        whose_test_runs("innocent", "echo x >own.txt; exit 1"),
    ]
    keys = track.keys(limits={"parallel": 1}, candidates=candidates)
    report = asyncio.run(paraval.race_async(**keys))
    assert report["innocent"].flags == ()
    for name, changed in zip(codes, REACHES, strict=True):
        (flag,) = report[name].flags
        assert "the repository changed while it ran" in flag
        assert changed in flag
    track.assert_nothing_is_left()


def test_in_a_sandbox_none_of_them_can(track: Track) -> None:
    if (reason := why_no_sandbox()) is not None:
        pytest.skip(reason)
    code = f"echo x >{track.repo}/new.txt; echo x >../../new.txt; true"
    report = track.race(whose_test_runs("reaches", code), sandbox=True)
    assert report["reaches"].status == "won"
    assert report["reaches"].flags == ()


# ---- answers that are kept where no later process should find them

KEEPS = """\
import os

PLACE = {place!r}


def work():
    if os.path.exists(PLACE):
        return open(PLACE).read()
    total = str(sum(range(1_500_000)))
    try:
        open(PLACE, "w").write(total)
    except OSError:
        pass
    return total
"""
SUMS = {
    "work.py": "def work():\n    return str(sum(range(1_500_000)))\n",
    "tests/test_work.py": (
        "import unittest\nfrom work import work\n\n\nclass T(unittest.TestCase):\n"
        "    def test(self):\n        self.assertEqual(work(), str(sum(range(1_500_000))))\n"
    ),
    "bench.py": "from work import work\nprint(work())\n",
}


def test_answers_kept_anywhere_on_the_machine_win_no_race(tmp_path: Path) -> None:
    """In memory that is shared, in temporary folders, and at an absolute path."""
    if (reason := why_no_sandbox()) is not None:
        pytest.skip(reason)
    track = make_track(tmp_path, SUMS)
    places = {
        "shared-memory": f"/dev/shm/{tmp_path.name}",
        "temporary": f"/tmp/{tmp_path.name}",
        "lasting": f"/var/tmp/{tmp_path.name}",
        "absolute": str(tmp_path / "answer"),
    }
    report = track.race(
        *(
            {"name": name, "files": {"work.py": KEEPS.format(place=place)}}
            for name, place in places.items()
        ),
        test=[sys.executable, "-m", "unittest", "discover", "tests"],
        bench={"command": [sys.executable, "bench.py"], "quiet": 0, "blocks": 3},
        env={"PYTHONPATH": "."},
        sandbox=None,
    )
    assert report.winner is None
    assert {one.status for one in report} <= {"not_shown", "slower"}
    assert not any(Path(place).exists() for place in places.values())
