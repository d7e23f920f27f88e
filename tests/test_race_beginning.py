"""What is checked and noted before a race begins or resumes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import paraval
from paraval.errors import RequestError
from paraval.racing import run as running
from paraval.racing.prepare import check_commands, not_committed_note, workspace_of
from paraval.racing.request import RaceRequest
from paraval.racing.run import resume_race
from paraval.records import Happening, Notice, Workspace
from paraval.runner.session import NullObserver
from paraval.settings import Options

from .race_kit import Track, request_for, telling, track_fixture  # noqa: F401 - a fixture
from .workspace_kit import fingerprint, git, repository_fixture  # noqa: F401 - a fixture


def asked(
    repository: Path, *bench: str, repo: dict[str, Any] | None = None, **keys: Any
) -> tuple[RaceRequest, Workspace]:
    keys = {"test": ["sh", "src/run.sh"], "repo": repo or {}, **keys}
    request = request_for(repository, bench=bench, **keys)
    return request, workspace_of(request)


# ---- what commands name


def test_a_command_whose_file_is_not_in_the_commit_is_refused(repository: Path) -> None:
    (repository / "bench2.py").write_text("1\n")
    for words in (
        ("python", "bench2.py"),
        ("sh", "-c", "python bench2.py"),
        ("pytest", "-q", "bench2.py::test_it"),
        ("perf", "--script=bench2.py"),
    ):
        with pytest.raises(RequestError, match=r"bench: bench2.py is not in commit") as caught:
            check_commands(*asked(repository, *words))
        assert "--uncommitted" in str(caught.value.hint)
        check_commands(*asked(repository, *words, repo={"uncommitted": True}))
    (repository / "out.json").write_text("{}")
    check_commands(*asked(repository, "perf", "out.json"))


def test_a_command_whose_file_git_ignores_is_refused(repository: Path) -> None:
    (repository / "build").mkdir()
    (repository / "build" / "bench.py").write_text("1\n")
    for uncommitted in (False, True):
        with pytest.raises(RequestError, match=r"git ignores build/bench.py") as caught:
            check_commands(
                *asked(repository, "python", "build/bench.py", repo={"uncommitted": uncommitted})
            )
        assert "setup" in str(caught.value.hint)


def test_a_file_behind_a_link_is_found(repository: Path) -> None:
    (repository / "way").symlink_to("src")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "a link")
    check_commands(*asked(repository, "python", "way/b.py"))


# ---- what is not committed


def test_uncommitted_changes_are_noted_except_the_races_own_files(
    repository: Path,
) -> None:
    candidates = repository / "candidates"
    candidates.mkdir()
    (candidates / "one.patch").write_text("x")
    for name in ("race.yaml", "propose.py", "x.log"):
        (repository / name).write_text("x")
    (repository / ".paraval").mkdir()
    (repository / ".paraval" / "x").write_text("x")
    more: dict[str, Any] = {
        "candidates": (str(candidates),),
        "propose": ("python", "propose.py", "."),
    }
    own = [repository / ".paraval", repository / "race.yaml"]
    before = fingerprint(repository)
    assert not_committed_note(*asked(repository, "true", **more), own) is None
    assert fingerprint(repository) == before
    (repository / "a.txt").write_text("edited\n")
    (repository / "new").mkdir()
    for name in ("new/b.py", "c.py", "d.py"):
        (repository / name).write_text("x")
    (repository / "image.bin").unlink()
    note = not_committed_note(*asked(repository, "true", **more), own)
    head = git(repository, "rev-parse", "HEAD")
    assert note == (
        f"The race starts from commit {head[:12]}, without your uncommitted changes"
        " (5 files: a.txt, c.py, d.py, …). --uncommitted includes them."
    )
    assert not_committed_note(*asked(repository, "true", repo={"uncommitted": True})) is None


def test_filters_of_the_user_do_not_run_for_the_note(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    git(repository, "config", "filter.evil.clean", f"touch {ran}; cat")
    (repository / ".gitattributes").write_text("* filter=evil\n")
    (repository / "a.txt").write_text("edited\n")
    assert not_committed_note(*asked(repository, "true")) is not None
    assert not ran.exists()


def test_a_race_of_another_commit_needs_no_note(repository: Path) -> None:
    git(repository, "tag", "older")
    (repository / "a.txt").write_text("newer\n")
    git(repository, "commit", "-qam", "newer")
    (repository / "a.txt").write_text("newest\n")
    assert not_committed_note(*asked(repository, "true", repo={"ref": "older"})) is None


def test_the_note_comes_before_anything_runs(track: Track) -> None:
    heard: list[str] = []

    class Listening(NullObserver):
        def __call__(self, event: Happening) -> None:
            if isinstance(event, Notice):
                heard.append(event.message)

    track.write({"notes": "not committed"})
    track.race(telling("same", 1.0), observer=Listening())
    assert "(1 file: notes)" in heard[0]


# ---- resuming without a function


def test_a_race_whose_propose_is_a_function_is_not_resumed_without_it(track: Track) -> None:
    """Its calls would be recorded as crashed, for good."""

    def propose(_: paraval.Ask) -> list[Any]:
        return []

    report = track.race(telling("one", 1.0), propose=propose)
    before = fingerprint(Path(report.run.folder))
    with pytest.raises(RequestError, match=r"`propose` .* is a Python function") as caught:
        resume_race(report.run, options=Options(store=track.store))
    assert f'Options(resume="{report.run.id}")' in str(caught.value.hint)
    options = Options(store=track.store, resume=report.run.id)
    with pytest.raises(RequestError, match=r"`propose` .* is a Python function"):
        track.race(telling("one", 1.0), options=options)
    assert fingerprint(Path(report.run.folder)) == before


# ---- the caller's event loop


def test_the_callers_loop_keeps_running_while_a_race_runs_git_and_reads_files(
    track: Track, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaps: list[float] = []

    async def tick() -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.005)
            now = time.monotonic()
            gaps.append(now - last)
            last = now

    def slowly(function: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*arguments: Any) -> Any:
            time.sleep(2.0)
            return function(*arguments)

        return slow

    for name in ("race_as_asked", "standings_of"):
        monkeypatch.setattr(running, name, slowly(getattr(running, name)))

    async def work() -> None:
        ticking = asyncio.create_task(tick())
        await track.race_async(telling("same", 1.0))
        ticking.cancel()

    asyncio.run(work())
    assert max(gaps) < 1.5
