"""Whole races that take a second or two: a repository of shell scripts, with a test and a
benchmark of milliseconds, and what must hold after every race on it.

The benchmark does not measure: it reports the number in `seconds`, so that a candidate's speedup is
known exactly, and shows whose code ran.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

import paraval
from paraval.racing.request import RaceKeys, RaceRequest
from paraval.racing.steps import STEP, StepKind
from paraval.scratch import SCRATCH_VARIABLE
from paraval.store.store import Store
from tests.repositories import commit_all, make_repository
from tests.workspace_kit import fingerprint

PROJECT = {
    ".gitignore": "__pycache__/\n*.json\n*.xml\n",
    "answer": "42\n",
    "seconds": "1.0\n",
    "work.sh": ":\n",
    "timed.sh": ":\n",
    "check.sh": '. ./work.sh\ntest "$(cat answer)" = 42\n',
    "bench.sh": '. ./timed.sh\nprintf \'{"__total__": %s}\' "$(cat seconds)" >out.json\n',
}
MARK = "RACE_OF"
"""A variable of all processes of a race."""

Candidate = dict[str, Any]


def telling(name: str, seconds: float) -> Candidate:
    """One that passes, and whose benchmark reports so many seconds; the baseline's reports 1."""
    return {"name": name, "files": {"seconds": f"{seconds}\n"}}


def wrong(name: str) -> Candidate:
    return {"name": name, "files": {"answer": f"wrong as {name} is\n"}}


def whose_test_runs(name: str, code: str) -> Candidate:
    """One whose test runs this shell, and then passes if it still can."""
    return {"name": name, "files": {"work.sh": f"{code}\n", "seconds": "0.5\n"}}


def whose_benchmark_runs(name: str, code: str) -> Candidate:
    """The same of its benchmark."""
    return {"name": name, "files": {"timed.sh": f"{code}\n", "seconds": "0.5\n"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A step, and when it ran by the clock."""

    kind: str
    candidate: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """Where races are run."""

    folder: Path

    @property
    def repo(self) -> Path:
        return self.folder / "repository"

    @property
    def scratch(self) -> Path:
        return self.folder / "scratch"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def write(self, files: Mapping[str, str]) -> None:
        """Into the repository, without a commit."""
        for name, text in files.items():
            path = self.repo / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, files: Mapping[str, str]) -> None:
        """What every candidate is a change to."""
        self.write(files)
        commit_all(self.repo)

    def keys(self, **keys: Any) -> dict[str, Any]:
        """The keys of a race here; `keys` override them."""
        bench = {"command": ["sh", "bench.sh"], "metric": "out.json", "quiet": 0, "blocks": 3}
        asked: dict[str, Any] = {
            "repo": self.repo,
            "test": ["sh", "check.sh"],
            "bench": bench,
            "limits": {"parallel": 2},
            "env": {MARK: str(self.folder)},
            # Some commands here leave beside their worktree what they did.
            "sandbox": False,
            # They print nothing.
            "accept": {"unseen_results": True},
            "options": paraval.Options(store=self.store),
        }
        return {**asked, **keys}

    def race(self, *candidates: Candidate, **keys: Any) -> paraval.RaceReport:
        return asyncio.run(self.race_async(*candidates, **keys))

    async def race_async(self, *candidates: Candidate, **keys: Any) -> paraval.RaceReport:
        """Afterwards the user's repository is as before, with times of change and git's own files,
        and nothing is left behind."""
        before = fingerprint(self.repo)
        try:
            asked = self.keys(**keys)
            asked["accept"] = {"unseen_results": True, **asked["accept"]}
            patched = [self.with_patch(one) for one in candidates]
            return await paraval.race_async(candidates=patched, **asked)
        finally:
            self.assert_nothing_is_left()
            assert fingerprint(self.repo) == before

    def with_patch(self, candidate: Candidate) -> Candidate:
        """A candidate that has `files`, new texts by path (None deletes one), with their patch."""
        if "files" not in candidate:
            return candidate
        patch = patch_of(self.repo, candidate["files"])
        return {"patch": patch, **{k: v for k, v in candidate.items() if k != "files"}}

    def steps(self, report: paraval.RaceReport) -> list[Ran]:
        """The steps that ran, in the order in which they began, from the store."""
        found = []
        with Store(self.store).reader(report.run) as reader:
            for attempt in reader.attempts():
                assert attempt.result is not None, f"{attempt.case_id} never ended"
                found.append(
                    Ran(
                        kind=str(attempt.variant[STEP]),
                        candidate=attempt.case_id,
                        began=attempt.started_at,
                        ended=attempt.started_at + attempt.result.duration_s,
                    )
                )
        return sorted(found, key=lambda step: step.began)

    def step(self, report: paraval.RaceReport, kind: StepKind, candidate: str) -> Ran:
        """The only one of its kind."""
        (only,) = [
            step for step in self.steps(report) if (step.kind, step.candidate) == (kind, candidate)
        ]
        return only

    def processes(self) -> list[str]:
        """The command lines of processes of races here that still run."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == str(self.folder):
                    found.append(" ".join(process.cmdline()))
            except psutil.Error:
                continue
        return found

    def assert_nothing_is_left(self) -> None:
        """No process, no worktree, no home, no temporary folder."""
        assert self.processes() == []
        left = [path for path in self.scratch.iterdir() if path.suffix != ".lock"]
        assert left == []


def patch_of(repo: Path, files: Mapping[str, str | None]) -> str:
    """The change to these texts, as git writes it."""
    parts = []
    for name, text in files.items():
        path = repo / name
        old = path.read_text() if path.exists() else None
        sides = [None if one is None else one.splitlines(keepends=True) for one in (old, text)]
        names = [f"{side}/{name}" for side in "ab"]
        before, after = (
            "/dev/null" if lines is None else called
            for lines, called in zip(sides, names, strict=True)
        )
        new = "new file mode 100644\n" if old is None else ""
        gone = "deleted file mode 100644\n" if text is None else ""
        parts.append(f"diff --git {names[0]} {names[1]}\n{new}{gone}")
        parts += [
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in difflib.unified_diff(sides[0] or [], sides[1] or [], before, after)
        ]
    return "".join(parts)


def request_for(repo: Path, /, **keys: Any) -> RaceRequest:
    """A race in a repository whose commands never run; its programs need not exist."""
    usual = {"test": ["pytest", "-q", "tests"], "bench": ["python", "bench.py"]}
    checked = RaceKeys.model_validate({**usual, **keys})
    return RaceRequest(name="race", source=None, folder=str(repo), repo=str(repo), keys=checked)


def make_track(folder: Path, files: Mapping[str, str] = PROJECT) -> Track:
    track = Track(folder=folder)
    track.scratch.mkdir(parents=True)
    track.repo.mkdir()
    track.write(files)
    make_repository(track.repo)
    return track


@contextmanager
def scratch_of(track: Track) -> Iterator[None]:
    """Temporary folders of races are in the track's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SCRATCH_VARIABLE, str(track.scratch))
        yield


@pytest.fixture(name="track")
def track_fixture(tmp_path: Path) -> Iterator[Track]:
    track = make_track(tmp_path)
    with scratch_of(track):
        yield track
