"""What other commands say of a recorded race: its patches, its logs, its place in the list."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
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
    assert "The race's settings have changed since it began" in again.stderr
    assert "newer" not in again.stdout


# ---- patches


def test_diff_prints_the_winners_patch_and_any_other_that_is_named(track: Track) -> None:
    assert "+0.5\n" in typed(track, "diff").stdout
    lost = typed(track, "diff", "last", "--case", "slow").stdout
    assert lost.startswith("diff --git a/seconds b/seconds\n")
    assert "+2.0\n" in lost
    several = typed(track, "diff", "last", "--case", "[qs]*").stdout
    assert [line for line in several.splitlines() if line.startswith("# ")] == ["# quick", "# slow"]
    assert "seconds  changed  +1 -1" in typed(track, "diff", "last", "--stat").stdout


def test_diff_says_who_has_no_patch_and_why(track: Track) -> None:
    every = typed(track, "diff", "last", "--case", "*")
    assert "never has no patch: " in every.stderr
    assert "# bad\n" in every.stdout
    assert "has no patch to show" in refusal(track, "diff", "last", "--case", "never").message


def test_diff_names_the_candidates_that_there_are(track: Track) -> None:
    unknown = refusal(track, "diff", "last", "--case", "quikc")
    assert unknown.message.endswith("has no candidate 'quikc'")
    assert unknown.hint == "it has quick"
    assert "one patch each" in refusal(track, "diff", "last", "--repeat", "2").message


# ---- logs, and the list


def test_logs_tell_what_steps_found_that_printed_nothing(track: Track) -> None:
    told = typed(track, "logs", "last", "--case", "quick").stdout
    assert "1 file: seconds (changed)" in told
    assert "baseline: 1 s, 1 s\ncandidate: 0.5 s, 0.5 s\n2.00× as fast" in told
    assert "answer:" not in told
    calibrated = typed(track, "logs", "last", "--variant", "step=calibrate").stdout
    assert "baseline: 1 s, " in calibrated
    (row, *_) = json.loads(typed(track, "logs", "last", "--case", "slow", "--json").stdout)
    assert row["finding"]["staged"]["files"][0]["path"] == "seconds"


def test_races_are_marked_in_the_list_of_runs(track: Track) -> None:
    _, line = typed(track, "runs").stdout.splitlines()
    assert " (race) " in line
    assert " done " in line
    (run,) = json.loads(typed(track, "runs", "--json").stdout)
    assert run["kind"] == "race"


def test_a_piped_report_is_as_wide_as_columns_says(
    track: Track, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert max(map(len, typed(track, "report").stdout.splitlines()[:8])) > 80
    monkeypatch.setenv("COLUMNS", "80")
    lines = typed(track, "report").stdout.splitlines()
    assert max(len(line) for line in lines if not line.startswith("The winning patch:")) <= 80


def test_the_help_names_the_endings_of_races() -> None:
    assert ".txt, or .patch" in " ".join(
        CliRunner().invoke(paraval, ["report", "--help"]).output.split()
    )


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
    assert "  t::test_sum failed\n    assert 1 == 2\n" in ended.stdout
    (pointer,) = [
        line for line in ended.stdout.splitlines() if line.startswith("See the baseline's output")
    ]
    _, _, command = pointer.partition("paraval ")
    assert typed(track, *command.replace(f" --store {track.store}", "").split()).exception is None


# ---- a folder that a stranger made


@pytest.mark.parametrize("leads", ["to a path", "through a link"])
def test_no_form_of_a_races_report_reads_a_patch_outside_of_its_folder(
    track: Track, tmp_path: Path, leads: str
) -> None:
    (run,) = (track.store / "runs").iterdir()
    copy = shutil.copytree(run, tmp_path / run.name)
    outside = tmp_path / "outside.txt"
    outside.write_text("CANARY\n")
    path = str(outside)
    if leads == "through a link":
        (copy / "elsewhere").symlink_to(tmp_path)
        path = f"elsewhere/{outside.name}"
    with closing(sqlite3.connect(copy / "run.db", isolation_level=None)) as connection:
        connection.execute(
            "UPDATE attempt SET content = json_replace(content, '$.artifacts.patch', ?)", (path,)
        )
    names = [tmp_path / f"race.{ending}" for ending in ("md", "txt", "json")]
    for name in (*names, tmp_path / "race.patch"):
        shown = typed(track, "report", str(copy), "-o", str(name))
        assert "CANARY" not in shown.output
        assert "the patch of quick cannot be read: " in " ".join(shown.output.split())
    assert all("CANARY" not in name.read_text() for name in names)
    assert not (tmp_path / "race.patch").exists()
    diff = typed(track, "diff", str(copy))
    assert diff.return_value == 2
    assert "quick: the patch cannot be read: " in diff.stderr
    assert "CANARY" not in diff.output


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE attempt SET content = json_set(content, '$.output.metadata.race', 5)",
        "UPDATE attempt SET content = json_set(content, '$.output.metadata.race.staged', 'x')",
        "UPDATE attempt SET content = json_set(content, '$.output.metadata.race.tested', 1)",
        "UPDATE attempt SET content = json_set(content, '$.output.metadata.race.measured', 'x')",
        "UPDATE attempt SET content = json_set(content, '$.output.metadata.elapsed_s', 'x')",
        "UPDATE attempt SET content = json_set(content, '$.output.metadata.elapsed_s', json('[]'))",
        "UPDATE run SET selection = json_set(selection, '$.race', '{}')",
        "UPDATE run SET selection = json_set(selection, '$.race', json('{}'))",
        "UPDATE variant SET choices = '{}'",
        """UPDATE variant SET choices = '{"step": ["stage"]}'""",
        "UPDATE result SET outcome = 'failed'",
        "UPDATE result SET outcome = 'passed'",
        "DELETE FROM trial WHERE idx % 2",
        "UPDATE case_ SET id = 'baseline'",
    ],
    ids=lambda statement: statement[:90],
)
def test_odd_values_in_a_race_are_a_damaged_run_and_never_a_traceback(
    track: Track, tmp_path: Path, statement: str
) -> None:
    (run,) = (track.store / "runs").iterdir()
    copy = shutil.copytree(run, tmp_path / run.name)
    with closing(sqlite3.connect(copy / "run.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(statement)
    files = [f"-o{tmp_path / name}" for name in ("race.md", "race.txt", "race.json")]
    for command in (["report", *files], ["report", "--json"], ["diff"], ["logs"]):
        typed(track, command[0], str(copy), *command[1:])
