"""The winner is applied to the user's working tree, completely or not at all."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from paraval.errors import RequestError
from paraval.git.repositories import find_repository
from paraval.git.run_git import run_git
from paraval.git.snapshots import snapshot, snapshot_tree
from paraval.processes.quick import QuickResult
from paraval.racing.apply import apply_winner, check_can_apply
from paraval.racing.steps import Base

from .race_kit import request_for
from .workspace_kit import contents, fingerprint, git, repository_fixture  # noqa: F401 - a fixture


def base_of(repository: Path) -> Base:
    return Base(tree=snapshot_tree(find_repository(repository)))


@pytest.fixture(name="patch")
def patch_fixture(repository: Path, tmp_path: Path) -> Path:
    """All kinds of changes."""
    clone = tmp_path / "clone"
    git(repository, "clone", "-q", ".", str(clone))
    (clone / "a.txt").write_text("one\nTWO\n")
    shutil.rmtree(clone / "src")
    (clone / "src").write_text("a file\n")
    (clone / "link").unlink()
    (clone / "link").symlink_to("nowhere")
    (clone / "image.bin").write_bytes(bytes(reversed(range(256))))
    (clone / "new" / "deep").mkdir(parents=True)
    (clone / "new" / "deep" / "program").write_text("#!/bin/sh\n")
    (clone / "new" / "deep" / "program").chmod(0o755)
    git(clone, "add", "-A")
    argv = ["git", "-C", str(clone), "diff", "--cached", "--binary", "--full-index", "--no-renames"]
    made = subprocess.run(argv, check=True, capture_output=True)
    (tmp_path / "winner.patch").write_bytes(made.stdout)
    return tmp_path / "winner.patch"


def git_of(repository: Path) -> dict[str, tuple[int, int, str]]:
    return fingerprint(repository / ".git")


def test_the_winner_is_written_only_to_the_working_tree(
    repository: Path, patch: Path, tmp_path: Path
) -> None:
    before = git_of(repository)
    applied = apply_winner(patch, str(repository), base_of(repository))
    assert str(applied) == (
        "edited a.txt, image.bin, link; added new/deep/program, src; deleted src/b.py, src/run.sh"
    )
    assert contents(repository) == contents(tmp_path / "clone")
    assert git_of(repository) == before


def test_a_race_in_a_folder_of_the_repository_is_applied_at_its_top(
    repository: Path, patch: Path, tmp_path: Path
) -> None:
    (repository / "other").mkdir()
    (repository / "other" / "x.log").write_text("ignored\n")
    apply_winner(patch, str(repository / "other"), base_of(repository))
    assert (repository / "a.txt").read_text() == "one\nTWO\n"


def test_other_files_may_have_changed_since_the_race_began(repository: Path, patch: Path) -> None:
    (repository / "other.txt").write_text("as it was\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "another file")
    base = base_of(repository)
    (repository / "other.txt").write_text("edited meanwhile\n")
    apply_winner(patch, str(repository), base)
    assert (repository / "a.txt").read_text() == "one\nTWO\n"
    assert (repository / "other.txt").read_text() == "edited meanwhile\n"


def test_files_that_the_winner_changes_must_be_as_when_the_race_began(
    repository: Path, patch: Path
) -> None:
    base = base_of(repository)
    (repository / "a.txt").write_text("edited meanwhile\n")
    before = fingerprint(repository)
    with pytest.raises(RequestError) as caught:
        apply_winner(patch, str(repository), base)
    assert "(a.txt)" in caught.value.message
    assert str(patch) in str(caught.value.hint)
    assert fingerprint(repository) == before
    git(repository, "commit", "-qam", "and committed")
    with pytest.raises(RequestError, match=r"no longer matches the commit .*\(a.txt\)"):
        apply_winner(patch, str(repository), base)


def test_untracked_files_do_not_prevent_applying_a_race_of_a_commit(
    repository: Path, patch: Path, tmp_path: Path
) -> None:
    """The race file, the candidates, what the race wrote."""
    base = base_of(repository)
    (repository / "candidates").mkdir()
    (repository / "candidates" / "one.patch").write_text("x\n")
    (repository / "race.yaml").write_text("x\n")
    check_can_apply(request_for(repository))
    apply_winner(patch, str(repository), base)
    there = contents(repository)
    assert {name: there.pop(name) for name in ("candidates", "candidates/one.patch", "race.yaml")}
    assert there == contents(tmp_path / "clone")


@pytest.mark.parametrize("path", ["new", "new/deep/program", "src/mine"])
def test_an_untracked_file_is_not_overwritten(repository: Path, patch: Path, path: str) -> None:
    base = base_of(repository)
    (repository / path).parent.mkdir(parents=True, exist_ok=True)
    (repository / path).write_text("mine\n")
    before = fingerprint(repository)
    with pytest.raises(RequestError, match=rf"in the way \({path}\)"):
        apply_winner(patch, str(repository), base)
    assert fingerprint(repository) == before


def test_a_race_with_uncommitted_changes_is_applied_on_top_of_them(
    repository: Path, patch: Path
) -> None:
    (repository / "notes").write_text("not committed\n")
    base = base_of(repository)
    apply_winner(patch, str(repository), base, uncommitted=True)
    assert (repository / "notes").read_text() == "not committed\n"
    with pytest.raises(RequestError, match="the working tree that the race began with"):
        apply_winner(patch, str(repository), base, uncommitted=True)


def test_an_ignored_file_is_not_overwritten(repository: Path, patch: Path) -> None:
    (repository / ".git" / "info" / "exclude").write_text("new/\n")
    (repository / "new" / "deep").mkdir(parents=True)
    (repository / "new" / "deep" / "program").write_text("mine\n")
    before = fingerprint(repository)
    with pytest.raises(RequestError, match="already exists"):
        apply_winner(patch, str(repository), base_of(repository))
    assert fingerprint(repository) == before


def test_a_failure_halfway_restores_everything(
    repository: Path, patch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(repository)

    def breaks_off(arguments: Sequence[str], *, cwd: str, stdin: bytes) -> QuickResult:
        ended = run_git(arguments, cwd=cwd, stdin=stdin)
        if "--check" in arguments or "--numstat" in arguments:
            return ended
        return QuickResult(exit_code=1, stderr="error: No space left on device")

    monkeypatch.setattr("paraval.racing.apply.run_git", breaks_off)
    with pytest.raises(RequestError, match="No space left"):
        apply_winner(patch, str(repository), base_of(repository))
    assert contents(repository) == before


def test_filters_and_hooks_of_the_user_do_not_run(
    repository: Path, patch: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    git(repository, "config", "filter.evil.smudge", f"touch {ran}; cat")
    git(repository, "config", "filter.evil.clean", f"touch {ran}; cat")
    (repository / ".git" / "info" / "attributes").write_text("* filter=evil\n")
    apply_winner(patch, str(repository), base_of(repository))
    assert not ran.exists()


def test_a_bare_repository_is_refused_before_anything_runs(repository: Path) -> None:
    check_can_apply(request_for(repository))
    git(repository, "clone", "-q", "--bare", ".", str(repository.parent / "bare"))
    with pytest.raises(RequestError, match="is bare"):
        check_can_apply(request_for(repository.parent / "bare"))


def test_other_changes_since_an_uncommitted_start_do_not_prevent_applying(
    repository: Path, patch: Path, tmp_path: Path
) -> None:
    (repository / "race.json").write_text("of the race before\n")
    (repository / "notes").write_text("not committed\n")
    objects = tmp_path / "objects"
    base = Base(tree=snapshot(find_repository(repository), objects).tree)
    (repository / "race.json").write_text("of this one\n")
    apply_winner(patch, str(repository), base, uncommitted=True, objects=objects)
    assert (repository / "race.json").read_text() == "of this one\n"
    assert (repository / "notes").read_text() == "not committed\n"
