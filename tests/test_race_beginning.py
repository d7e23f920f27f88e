"""What is found before a race begins or goes on, and what it may do to whoever waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import paraval
from paraval.errors import RequestError
from paraval.racing import run as running
from paraval.racing.prepare import check_commands, not_committed_note, script_of, workspace_of
from paraval.racing.request import BenchSpec, HookSpec, RaceRequest, TestSpec
from paraval.racing.run import resume_race
from paraval.records import Happening, Notice, Workspace
from paraval.runner.session import NullObserver
from paraval.settings import Options

from .race_kit import Track, telling, track_fixture, whose_test_runs, wrong  # noqa: F401 - a fixture
from .test_race_staging import request_for
from .workspace_kit import fingerprint, git, repository_fixture  # noqa: F401 - a fixture

WELL = TestSpec(command=("sh", "src/run.sh"))


def asked(repository: Path, *bench: str, **more: Any) -> tuple[RaceRequest, Workspace]:
    request = request_for(
        repository, test=more.pop("test", WELL), bench=BenchSpec(command=bench), **more
    )
    return request, workspace_of(request)


# ---- what commands name


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python bench.py --n 3", "bench.py"),
        ("/usr/bin/python3.11 -X dev -u bench.py", "bench.py"),
        ("sh -e run.sh", "run.sh"),
        ("bash -o pipefail run.sh", "run.sh"),
        ("./run.sh now", "./run.sh"),
        ("python -m pytest tests", None),
        ("python -c pass", None),
        ("sh -ec run.sh", None),
        ("python -", None),
        ("python", None),
        ("pytest -q", None),
        ("make bench", None),
    ],
)
def test_the_file_that_a_plain_command_starts_is_known(command: str, script: str | None) -> None:
    assert script_of(tuple(command.split())) == script


def test_a_command_whose_file_is_not_in_the_commit_is_refused_at_once(repository: Path) -> None:
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
        check_commands(*asked(repository, *words, uncommitted=True))
    (repository / "out.json").write_text("{}")
    check_commands(*asked(repository, "perf", "out.json"))


def test_a_command_whose_file_is_nowhere_is_told_what_may_be_meant(repository: Path) -> None:
    with pytest.raises(RequestError, match=r"there is no src/rum.sh .* did you mean src/run.sh\?"):
        check_commands(*asked(repository, "true", test=TestSpec(command=("sh", "src/rum.sh"))))
    with pytest.raises(RequestError, match=r"bench: there is no src/c.py in commit"):
        check_commands(*asked(repository / "src", "python", "c.py", test=TestSpec(command=("x",))))
    check_commands(*asked(repository, "python", "rum.sh", setup=("make",)))
    check_commands(*asked(repository, "python", "/nowhere/x.py"))
    check_commands(*asked(repository, "python", "-m", "nowhere"))
    check_commands(*asked(repository / "src", "python", "../a.txt", test=TestSpec(command=("x",))))


def test_a_file_that_git_ignores_is_no_file_of_a_race(repository: Path) -> None:
    (repository / "build").mkdir()
    (repository / "build" / "bench.py").write_text("1\n")
    for uncommitted in (False, True):
        with pytest.raises(RequestError, match=r"git ignores build/bench.py") as caught:
            check_commands(*asked(repository, "python", "build/bench.py", uncommitted=uncommitted))
        assert "setup" in str(caught.value.hint)


def test_a_file_behind_a_link_is_there(repository: Path) -> None:
    (repository / "way").symlink_to("src")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "a link")
    check_commands(*asked(repository, "python", "way/b.py"))


# ---- what is not committed


def test_what_is_not_committed_is_told_and_what_the_race_is_asked_with_is_not(
    repository: Path,
) -> None:
    candidates = repository / "candidates"
    candidates.mkdir()
    (candidates / "one.patch").write_text("x")
    for name in ("race.yaml", "repair.py", "x.log"):
        (repository / name).write_text("x")
    (repository / ".paraval").mkdir()
    (repository / ".paraval" / "x").write_text("x")
    more: dict[str, Any] = {
        "candidates": (str(candidates),),
        "repair": HookSpec(command=("python", "repair.py", ".")),
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
    assert not_committed_note(*asked(repository, "true", uncommitted=True)) is None


def test_a_filter_of_the_user_does_not_run_for_it(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    git(repository, "config", "filter.evil.clean", f"touch {ran}; cat")
    (repository / ".gitattributes").write_text("* filter=evil\n")
    (repository / "a.txt").write_text("edited\n")
    assert not_committed_note(*asked(repository, "true")) is not None
    assert not ran.exists()


def test_a_race_of_another_commit_is_meant_so(repository: Path) -> None:
    git(repository, "tag", "older")
    (repository / "a.txt").write_text("newer\n")
    git(repository, "commit", "-qam", "newer")
    (repository / "a.txt").write_text("newest\n")
    assert not_committed_note(*asked(repository, "true", ref="older")) is None


def test_the_note_comes_before_anything_runs(track: Track) -> None:
    heard: list[str] = []

    class Listening(NullObserver):
        def __call__(self, event: Happening) -> None:
            if isinstance(event, Notice):
                heard.append(event.message)

    track.write({"notes": "not committed"})
    track.race(telling("same", 1.0), observer=Listening())
    assert "(1 file: notes)" in heard[0]


# ---- going on without a function


def test_a_race_whose_hook_is_a_function_is_not_gone_on_with_without_it(track: Track) -> None:
    """It would be recorded as crashed, for good."""

    async def repair(_: paraval.Ask) -> list[Any]:
        return []

    report = track.race(wrong("one"), repair=repair)
    before = fingerprint(Path(report.run.folder))
    with pytest.raises(RequestError, match=r"`repair` .* is a Python function") as caught:
        resume_race(report.run, options=Options(store=track.store))
    assert f'Options(resume="{report.run.id}")' in str(caught.value.hint)
    options = Options(store=track.store, resume=report.run.id)
    with pytest.raises(RequestError, match=r"`repair` .* is a Python function"):
        track.race(wrong("one"), options=options)
    assert fingerprint(Path(report.run.folder)) == before


# ---- whoever waits


def test_a_hook_that_waits_keeps_no_test_from_running(track: Track, tmp_path: Path) -> None:
    """With one test at once, what it proposed is staged and tested while it still runs."""
    tested = tmp_path / "tested"

    async def generate(_: paraval.Ask) -> AsyncIterator[dict[str, Any]]:
        yield whose_test_runs("one", f"echo >{tested}")
        async with asyncio.timeout(30):
            while not tested.exists():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.01)

    report = track.race(generate=generate, limits={"parallel": 1})
    assert report["one"].status == "won"
    assert report.run.parallel == 1


def test_the_callers_loop_goes_on_while_a_race_asks_git_and_reads(
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
