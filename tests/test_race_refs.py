"""`paraval race --compare-refs BASE HEAD`: the speed of two commits, key by key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import paraval
from paraval.cli.main import paraval as command
from tests.race_kit import Track, make_track, scratch_of
from tests.repositories import commit_all, run_git

BENCH = 'printf \'{"small": %s, "__total__": %s}\' 0.1 "$(cat seconds)" >out.json\n'
RACE: dict[str, Any] = {
    "repo": "repository",
    "test": ["sh", "check.sh"],
    "bench": {"command": ["sh", "bench.sh"], "metric": "out.json", "quiet": 0, "blocks": 3},
    "candidates": "gone.patch",
    "propose": "sh",
}


@pytest.fixture(name="refs", scope="module")
def refs_fixture(tmp_path_factory: pytest.TempPathFactory) -> Track:
    """A repository with the branches main, quick, slow and wrong. Main has moved on since."""
    track = make_track(tmp_path_factory.mktemp("refs"))
    track.commit({"bench.sh": BENCH})
    run_git(track.repo, "branch", "-M", "main")
    for branch, files in {
        "quick": {"seconds": "0.5\n", "check.sh": "test -e answer && test ! -e newer\n"},
        "slow": {"seconds": "2.0\n"},
        "wrong": {"answer": "41\n"},
    }.items():
        run_git(track.repo, "checkout", "-q", "-b", branch, "main")
        track.commit(files)
    run_git(track.repo, "checkout", "-q", "main")
    track.commit({"newer": "a file that no branch has\n"})
    (track.folder / "race.json").write_text(json.dumps({"race": RACE}))
    return track


def compare(track: Track, *arguments: str) -> tuple[int, str]:
    """The exit code and what was printed."""
    fixed = ("--progress", "none", "--store", str(track.store))
    with scratch_of(track):
        result = CliRunner().invoke(
            command,
            ("race", str(track.folder / "race.json"), *fixed, "--compare-refs", *arguments),
            standalone_mode=False,
        )
    if result.exception is not None:
        raise result.exception
    track.assert_nothing_is_left()
    return result.return_value, result.stdout


def test_two_refs_are_compared_key_by_key_each_exactly_as_it_is(refs: Track) -> None:
    files = [refs.folder / "report.md", refs.folder / "report.json"]
    outputs = [word for file in files for word in ("-o", str(file))]
    code, text = compare(refs, "main", "quick", *outputs)
    assert code == 0
    assert "quick is faster than main: 2.00× as fast (95%: 2.00–2.00)" in text
    words = [line.split() for line in text.splitlines()]
    assert ["key", "main", "quick", "delta", "speedup", "(95%)"] in words
    assert ["small", "100", "ms", "100", "ms", "+0", "us", "1.00×", "(1.00–1.00)"] in words
    assert ["__total__", "1.0", "s", "500", "ms", "-500", "ms", "2.00×", "(2.00–2.00)"] in words
    assert "| 1.0 s | 500 ms | -500 ms | 2.00× (2.00–2.00) |" in files[0].read_text()
    document = json.loads(files[1].read_text())
    assert (document["refs"]["base"], document["refs"]["head"]) == ("main", "quick")
    small, total = document["refs"]["keys"]
    assert small["key"] == "small"
    assert (total["base_s"], total["head_s"], total["delta_s"]) == (1.0, 0.5, -0.5)
    assert document["candidates"][0]["blocks"] == 3
    assert "winning patch" not in text


def test_a_slower_ref_is_measured_to_the_end_and_fails_the_command(refs: Track) -> None:
    code, text = compare(refs, "main", "slow")
    assert code == 1
    assert "slow is slower than main: 0.50× as fast (95%: 0.50–0.50)" in text
    assert "the finalist on fresh blocks" in text


def test_a_ref_that_fails_its_tests_is_not_compared_and_fails_the_command(refs: Track) -> None:
    code, text = compare(refs, "main", "wrong")
    assert code == 1
    assert "wrong was not compared: failed (" in text


def test_equal_refs_are_reported_without_measuring(refs: Track) -> None:
    code, text = compare(refs, "main", "HEAD")
    assert code == 0
    assert "HEAD and main are equal: it changes nothing." in text


def test_a_comparison_from_python_needs_no_tests(tmp_path: Path) -> None:
    track = make_track(tmp_path)
    run_git(track.repo, "branch", "before")
    (track.repo / "seconds").write_text("0.25\n")
    commit_all(track.repo)
    with scratch_of(track):
        report = paraval.race(
            repo={"git": track.repo, "ref": "before", "head": "HEAD"},
            bench=RACE["bench"],
            options=paraval.Options(store=track.store),
        )
    assert report.exit_code == 0
    assert report["HEAD"].seconds == {"__total__": 0.25}
    assert "tests" not in str(report)
