"""A run's folder that a stranger made: nothing outside of it is read, and nothing hangs."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import Paraval, WriteSuite

SECRET = "CANARY-OUTSIDE-OF-THE-RUN"
SUITE = """
name: foreign
cases: [{id: first}, {id: second}]
workspace: {folder: template}
target: {shell: true, command: "echo new > changed.txt; echo printed by {case.id}"}
"""


@pytest.fixture
def run(write: WriteSuite, folder: Path, paraval: Paraval) -> Path:
    """The folder of a run of two trials, each with logs and a patch."""
    (folder / "template").mkdir()
    (folder / "template" / "file.txt").write_text("old\n")
    (folder / "outside.txt").write_text(f"{SECRET}\n")
    write("suite.yaml", SUITE)
    ended = paraval("run", "suite.yaml", "--progress", "none")
    assert ended.returncode == 0, ended.stderr
    (made,) = (folder / ".paraval" / "runs").iterdir()
    return made


def execute(run: Path, *statements: str) -> None:
    with closing(sqlite3.connect(run / "run.db", isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def point_artifacts_at(run: Path, path: str) -> None:
    """Of the first trial; those of the second stay as they are."""
    with closing(sqlite3.connect(run / "run.db", isolation_level=None)) as connection:
        key, text = connection.execute(
            "SELECT attempt.key, content FROM attempt JOIN trial USING (key) WHERE idx = 0"
        ).fetchone()
        content = json.loads(text)
        content["artifacts"] = dict.fromkeys(content["artifacts"], path)
        connection.execute(
            "UPDATE attempt SET content = ? WHERE key = ?", (json.dumps(content), key)
        )


def artifact(run: Path, name: str) -> Path:
    """Of the first trial."""
    with closing(sqlite3.connect(run / "run.db")) as connection:
        (text,) = connection.execute(
            "SELECT content FROM attempt JOIN trial USING (key) WHERE idx = 0"
        ).fetchone()
    return Path(run, json.loads(text)["artifacts"][name])


# ---- artifacts


def by_an_absolute_path(run: Path, outside: Path) -> None:
    point_artifacts_at(run, str(outside))


def by_a_path_that_climbs(run: Path, outside: Path) -> None:
    point_artifacts_at(run, f"artifacts/{os.path.relpath(outside, run / 'artifacts')}")


def by_a_link_in_the_place_of_the_file(run: Path, outside: Path) -> None:
    for name in ("stdout", "patch"):
        artifact(run, name).unlink()
        artifact(run, name).symlink_to(outside)


def by_a_link_in_the_place_of_a_folder(run: Path, outside: Path) -> None:
    (run / "elsewhere").symlink_to(outside.parent)
    point_artifacts_at(run, f"elsewhere/{outside.name}")


def by_a_pipe(run: Path, outside: Path) -> None:
    for name in ("stdout", "patch"):
        artifact(run, name).unlink()
        os.mkfifo(artifact(run, name))


def by_a_device(run: Path, outside: Path) -> None:
    point_artifacts_at(run, "/dev/zero")


WAYS = [
    by_an_absolute_path,
    by_a_path_that_climbs,
    by_a_link_in_the_place_of_the_file,
    by_a_link_in_the_place_of_a_folder,
    by_a_pipe,
    by_a_device,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_command_reads_an_artifact_outside_of_the_run_and_the_rest_is_shown(
    run: Path, folder: Path, paraval: Paraval, way: Callable[[Path, Path], None]
) -> None:
    way(run, folder / "outside.txt")
    logs = paraval("logs", str(run), timeout=20)
    assert (logs.returncode, "printed by second" in logs.stdout) == (0, True)
    assert "first · attempt 1 · stdout: " in logs.stderr
    diff = paraval("diff", str(run), timeout=20)
    assert (diff.returncode, diff.stdout.count("+new")) == (2, 1)
    assert "first: the patch cannot be read: " in diff.stderr
    files = ("page.html", "run.json", "run.md")
    report = paraval("report", str(run), *(f"-o{name}" for name in files), timeout=60)
    assert report.returncode == 0, report.stderr
    written = "".join((folder / name).read_text() for name in files)
    for text in (logs.stdout, diff.stdout, report.stdout, written):
        assert SECRET not in text


def test_a_target_that_replaces_its_own_log_by_a_link_is_not_followed(
    write: WriteSuite, folder: Path, paraval: Paraval
) -> None:
    (folder / "outside.txt").write_text(f"{SECRET}\n")
    write(
        "suite.yaml",
        """
        cases: [{id: only}]
        target:
          shell: true
          command: >-
            echo printed;
            until [ -s .paraval/runs/*/artifacts/*/*/1/stdout.log ]; do sleep 0.05; done;
            cd .paraval/runs/*/artifacts/*/*/1;
            rm stdout.log; ln -s "$OUT" stdout.log
          env: {OUT: "%s"}
        """
        % (folder / "outside.txt"),
    )
    paraval("run", "suite.yaml", "--progress", "none")
    (log,) = (folder / ".paraval/runs").rglob("stdout.log")
    assert log.is_symlink()
    logs = paraval("logs", "last")
    assert SECRET not in logs.stdout + logs.stderr


def test_paths_that_lead_out_are_not_handed_to_programs_either(
    run: Path, folder: Path, paraval: Paraval
) -> None:
    point_artifacts_at(run, str(folder / "outside.txt"))
    first, second = json.loads(paraval("logs", str(run), "--json").stdout)
    assert first["stdout"] is None
    assert second["stdout"].startswith(str(run))


def test_an_attempt_that_never_ended_is_looked_for_in_the_runs_folder_alone(
    run: Path, folder: Path, paraval: Paraval
) -> None:
    place = folder / "elsewhere" / "1"
    place.mkdir(parents=True)
    (place / "stdout.log").write_text(SECRET)
    key = os.path.relpath(place.parent, run)
    execute(
        run,
        "PRAGMA foreign_keys = OFF",
        "DELETE FROM result",
        "DELETE FROM attempt",
        f"UPDATE trial SET key = '{key}' WHERE idx = 0",
        f"INSERT INTO attempt (key, number, session, started_at) VALUES ('{key}', 1, 1, 1)",
    )
    logs = paraval("logs", str(run))
    assert SECRET not in logs.stdout + logs.stderr
