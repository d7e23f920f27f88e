"""What other commands show of a recorded race: its patches, its logs, its place in the list."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from paraval.cli.main import paraval
from paraval.errors import ParavalError
from tests.race_kit import Track, make_track, scratch_of, telling, wrong

FILE = """
name: sorting
race:
  repo: repository
  test: sh check.sh
  bench: {command: sh bench.sh, metric: out.json, quiet: 0, blocks: 3, cpus: 0}
  candidates: candidates.jsonl
  accept: {unseen_results: true}
  limits: {parallel: 2}
"""


@pytest.fixture(scope="module", name="track")
def track_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Track]:
    """A finished race: quick won, slow lost, bad failed, and never did not apply."""
    track = make_track(tmp_path_factory.mktemp("track"))
    give(track, telling("quick", 0.5), telling("slow", 2.0), wrong("bad"), NEVER)
    (track.folder / "race.yaml").write_text(FILE)
    with scratch_of(track):
        assert typed(track, "race", "race.yaml").return_value == 0
        yield track


NEVER = {"name": "never", "patch": "no patch"}


def give(track: Track, *candidates: dict[str, Any]) -> None:
    lines = "".join(f"{json.dumps(track.with_patch(one))}\n" for one in candidates)
    (track.folder / "candidates.jsonl").write_text(lines)


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


# ---- resuming


def test_a_resumed_race_keeps_its_candidates_and_reports_that_the_file_changed(
    track: Track,
) -> None:
    assert "has changed since" not in typed(track, "race", "race.yaml", "--resume", "last").stderr
    path = track.folder / "candidates.jsonl"
    before = path.read_text()
    path.write_text(before + json.dumps(track.with_patch(telling("newer", 0.25))) + "\n")
    again = typed(track, "race", "race.yaml", "--resume", "last")
    path.write_text(before)
    assert again.return_value == 0
    assert "The race's settings have changed since it began" in again.stderr
    assert "newer" not in again.stdout


# ---- patches


def test_diff_prints_the_patch_of_the_winner_or_of_the_named_candidates(track: Track) -> None:
    assert "+0.5\n" in typed(track, "diff").stdout
    lost = typed(track, "diff", "last", "--case", "slow").stdout
    assert lost.startswith("diff --git a/seconds b/seconds\n")
    assert "+2.0\n" in lost
    several = typed(track, "diff", "last", "--case", "[qs]*").stdout
    assert [line for line in several.splitlines() if line.startswith("# ")] == ["# quick", "# slow"]
    assert "seconds  changed  +1 -1" in typed(track, "diff", "last", "--stat").stdout


def test_diff_reports_a_candidate_without_a_patch(track: Track) -> None:
    every = typed(track, "diff", "last", "--case", "*")
    assert "never has no patch: " in every.stderr
    assert "# bad\n" in every.stdout
    assert "has no patch to show" in refusal(track, "diff", "last", "--case", "never").message


def test_diff_suggests_a_candidate_for_an_unknown_name(track: Track) -> None:
    unknown = refusal(track, "diff", "last", "--case", "quikc")
    assert unknown.message.endswith("has no candidate 'quikc'")
    assert unknown.hint == "it has quick"
    assert "one patch each" in refusal(track, "diff", "last", "--repeat", "2").message


# ---- logs, and the list


def test_logs_show_what_steps_found_that_printed_nothing(track: Track) -> None:
    logs = typed(track, "logs", "last", "--case", "quick").stdout
    assert "1 file: seconds (changed)" in logs
    assert "baseline: 1 s, 1 s\ncandidate: 0.5 s, 0.5 s\n2.00× as fast" in logs
    assert "answer:" not in logs
    calibrated = typed(track, "logs", "last", "--variant", "step=calibrate").stdout
    assert "baseline: 1 s, " in calibrated
    (row, *_) = json.loads(typed(track, "logs", "last", "--case", "slow", "--json").stdout)
    assert row["finding"]["staged"]["files"][0]["path"] == "seconds"


def test_the_list_of_runs_marks_races(track: Track) -> None:
    _, line, winner = typed(track, "runs").stdout.splitlines()
    assert " (race) " in line
    assert " done " in line
    assert winner.split() == ["winner:", "quick", "2.00×", "(2.00–2.00)"]
    (run,) = json.loads(typed(track, "runs", "--json").stdout)
    assert run["kind"] == "race"


def test_a_piped_report_is_as_wide_as_the_variable_columns(
    track: Track, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert max(map(len, typed(track, "report").stdout.splitlines()[:8])) > 80
    monkeypatch.setenv("COLUMNS", "80")
    lines = typed(track, "report").stdout.splitlines()
    assert max(len(line) for line in lines if not line.startswith("The winning patch:")) <= 80


def test_the_help_of_report_lists_the_formats_of_races() -> None:
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


def test_a_failing_baseline_shows_its_failing_test_and_where_to_read_more(tmp_path: Path) -> None:
    track = make_track(tmp_path)
    track.commit({"check.sh": 'cat junit.txt >"$1"\nexit 1\n', "junit.txt": JUNIT})
    give(track, telling("quick", 0.5))
    (track.folder / "race.yaml").write_text(FILE.replace("check.sh", "check.sh {junit}"))
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


# ---- a run's folder from someone else


@pytest.mark.parametrize("leads", ["to a path", "through a link"])
def test_no_report_of_a_race_reads_a_patch_outside_its_folder(
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
        "UPDATE attempt SET content = json_set(content, '$.output.metadata.race.block', 'x')",
        "UPDATE attempt SET content = json_set(content, '$.output.metadata.elapsed_s', 'x')",
        "UPDATE attempt SET content = json_set(content, '$.output.metadata.elapsed_s', json('[]'))",
        "UPDATE run SET selection = json_set(selection, '$.race', '{}')",
        "UPDATE run SET selection = json_set(selection, '$.race', json('{}'))",
        "UPDATE run SET selection = replace(selection, 'bench.sh', '')",
        "UPDATE variant SET choices = '{}'",
        """UPDATE variant SET choices = '{"step": ["stage"]}'""",
        "UPDATE result SET outcome = 'failed'",
        "UPDATE result SET outcome = 'passed'",
        "DELETE FROM trial WHERE idx % 2",
        "UPDATE case_ SET id = 'baseline'",
    ],
    ids=lambda statement: statement[:90],
)
def test_damaged_values_in_a_recorded_race_never_cause_a_traceback(
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
