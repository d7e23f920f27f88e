"""What other commands say of a recorded race: its patches, its logs, its place in the list."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from paraval.cli.main import paraval
from paraval.errors import ParavalError
from tests.race_kit import Track, make_track, scratch_of, telling, wrong

FILE = """
name: sorting
repo: repository
test: [sh, check.sh]
bench: {command: [sh, bench.sh], metric: out.json, quiet: 0, blocks: 3, cpus: 0}
candidates: candidates.jsonl
limits: {parallel: 2}
"""


@pytest.fixture(scope="module", name="track")
def track_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Track]:
    """A race that was run: quick won, slow lost, bad failed and never is no candidate."""
    track = make_track(tmp_path_factory.mktemp("track"))
    given = [
        telling("quick", 0.5),
        telling("slow", 2.0),
        wrong("bad"),
        {"name": "never", "patch": "no patch"},
    ]
    lines = "".join(f"{json.dumps(one)}\n" for one in given)
    (track.folder / "candidates.jsonl").write_text(lines)
    (track.folder / "race.yaml").write_text(FILE)
    with scratch_of(track):
        assert typed(track, "race", "race.yaml").return_value == 0
        yield track


def typed(track: Track, command: str, *arguments: str) -> Result:
    before = Path.cwd()
    os.chdir(track.folder)
    try:
        more = ("--progress", "lines") if command == "race" else ()
        result = CliRunner().invoke(
            paraval,
            (command, *arguments, *more, "--store", str(track.store)),
            standalone_mode=False,
        )
    finally:
        os.chdir(before)
    if result.exception is not None and not isinstance(result.exception, ParavalError):
        raise result.exception
    return result


def refusal(track: Track, *arguments: str) -> ParavalError:
    error = typed(track, *arguments).exception
    assert isinstance(error, ParavalError)
    return error


# ---- going on


def test_candidates_that_changed_since_are_told_and_not_raced(track: Track) -> None:
    assert "has changed since" not in typed(track, "race", "race.yaml", "--resume", "last").stderr
    path = track.folder / "candidates.jsonl"
    before = path.read_text()
    path.write_text(before + json.dumps(telling("newer", 0.25)) + "\n")
    again = typed(track, "race", "race.yaml", "--resume", "last")
    path.write_text(before)
    assert again.return_value == 0
    assert "What is asked of the race has changed since it began" in again.stderr
    assert "newer" not in again.stdout


# ---- a baseline that fails

JUNIT = """\
<testsuite><testcase classname="t" name="test_sum"><failure message="assert 1 == 2">
&gt;       assert 1 == 2
E       assert 1 == 2
</failure></testcase></testsuite>
"""


def test_a_baseline_that_fails_says_why_once_while_it_runs_and_in_the_end(tmp_path: Path) -> None:
    track = make_track(tmp_path)
    track.commit({"check.sh": "cat junit.txt >junit.xml\nexit 1\n", "junit.txt": JUNIT})
    (track.folder / "candidates.jsonl").write_text(json.dumps(telling("quick", 0.5)) + "\n")
    (track.folder / "race.yaml").write_text(
        FILE.replace("[sh, check.sh]", "{command: [sh, check.sh], junit: junit.xml}")
    )
    with scratch_of(track):
        ended = typed(track, "race", "race.yaml")
    assert ended.return_value == 3
    assert ended.stderr.count("baseline  failed: ") == 1
    assert "  t.test_sum failed\n    expected: 2\n    actual:   1\n" in ended.stdout
    (pointer,) = [line for line in ended.stdout.splitlines() if line.startswith("What it printed")]
    _, _, command = pointer.partition("paraval ")
    assert typed(track, *command.replace(f" --store {track.store}", "").split()).exception is None
