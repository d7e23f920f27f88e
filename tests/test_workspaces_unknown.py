"""What an attempt did is never told as less than it was: nothing hides, and unknown is unknown."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paraval.records import Change, Workspace, WorkspaceKind
from paraval.scratch import SCRATCH_VARIABLE, scratch_folder
from paraval.workspaces import inventory as stock, patches
from paraval.workspaces.workspace import KeptWorkspace, Lease

from .workspace_kit import (  # noqa: F401 - fixtures, used by their names
    attempts,
    git,
    kept_in_fixture,
    repository_fixture,
    run,
    scratch_fixture,
    workspace_gone,
    workspace_replaced,
    worktrees,
)

NOBODY = 65534


def kept_after(
    act: Callable[[Path], object], workspace: Workspace, scratch: Path, kept_in: str
) -> KeptWorkspace:
    """What is kept of an attempt that does this; the next one begins clean."""

    async def work(lease: Lease) -> KeptWorkspace:
        act(Path(lease.top))
        return await lease.keep(kept_in)

    async def look(lease: Lease) -> KeptWorkspace:
        return await lease.keep(kept_in)

    kept, next_one = run(attempts(workspace, scratch, work, look))
    assert next_one.change == Change()
    return kept


def paths_of(kept: KeptWorkspace) -> list[str]:
    return [file.path for file in kept.change.files]


# ---- nothing hides


def hides_by_a_rule_within(top: Path) -> None:
    (top / "d" / "deep").mkdir(parents=True)
    (top / "d" / ".gitignore").write_text("*\n")
    (top / "d" / "deep" / "conftest.py").write_text("cheat\n")


def hides_by_the_rules_at_the_top(top: Path) -> None:
    (top / ".gitignore").write_text("*\n")
    (top / "conftest.py").write_text("cheat\n")


def hides_by_rules_in_git(top: Path) -> None:
    (top / ".git" / "info").mkdir(exist_ok=True)
    (top / ".git" / "info" / "exclude").write_text("*\n")
    (top / "conftest.py").write_text("cheat\n")


def hides_in_a_repository(top: Path) -> None:
    git(top, "init", "-q", "within")
    (top / "within" / "conftest.py").write_text("cheat\n")
    git(top / "within", "add", "-A")
    git(top / "within", "commit", "-qm", "a repository within")


def hides_in_a_submodule(top: Path) -> None:
    (top / "module" / "src").mkdir()
    (top / "module" / "src" / "conftest.py").write_text("cheat\n")


def hides_by_a_name(top: Path) -> None:
    for name in ("git~1", ":(exclude)conftest.py", "-x"):
        (top / name).write_text("cheat\n")


@pytest.mark.parametrize(
    ("act", "paths"),
    [
        (hides_by_a_rule_within, ["d/.gitignore", "d/deep/conftest.py"]),
        (hides_by_the_rules_at_the_top, [".gitignore", "conftest.py"]),
        (hides_by_rules_in_git, ["conftest.py"]),
        (hides_in_a_repository, ["within/conftest.py"]),
        (hides_in_a_submodule, ["module/src/conftest.py"]),
        (hides_by_a_name, ["-x", ":(exclude)conftest.py", "git~1"]),
    ],
)
def test_a_file_that_an_attempt_hides_from_git_is_part_of_its_change(
    repository: Path,
    scratch: Path,
    kept_in: str,
    act: Callable[[Path], None],
    paths: list[str],
) -> None:
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},module")
    git(repository, "commit", "-qm", "a submodule")
    kept = kept_after(act, worktrees(repository), scratch, kept_in)
    assert paths_of(kept) == paths
    assert kept.change.unknown is None
    assert kept.patch is not None
    assert "cheat" in Path(kept.patch).read_text()
    assert "160000" not in Path(kept.patch).read_text()


def test_repositories_made_of_pipes_do_not_keep_git_waiting(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},module")
    git(repository, "commit", "-qm", "a submodule")

    def act(top: Path) -> None:
        (top / "a.txt").unlink()
        for folder in ("a.txt", "module", "new", "src"):
            for name in ("objects", "refs"):
                (top / folder / ".git" / name).mkdir(parents=True)
            os.mkfifo(top / folder / ".git" / "HEAD")
            os.mkfifo(top / folder / ".git" / "config")
            (top / folder / "b.py").write_text("cheat\n")

    kept = kept_after(act, worktrees(repository), scratch, kept_in)
    assert paths_of(kept) == ["a.txt", "a.txt/b.py", "module/b.py", "new/b.py", "src/b.py"]
    assert kept.change.unknown is None


def test_a_name_that_git_takes_for_its_own_is_listed(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    def act(top: Path) -> None:
        (top / "d" / ".GIT").mkdir(parents=True)
        (top / "d" / ".GIT" / "conftest.py").write_text("cheat\n")

    kept = kept_after(act, worktrees(repository), scratch, kept_in)
    assert paths_of(kept) == ["d/.GIT/conftest.py"]
    assert "git accepts no file with that name" in (kept.change.unknown or "")


def test_what_the_rules_of_the_start_ignore_and_caches_of_tools_are_no_change(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    (repository / "src" / ".gitignore").write_text("/out/*\n!/out/kept\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "rules within")

    def act(top: Path) -> None:
        (top / ".gitignore").unlink()
        (top / "src" / ".gitignore").write_text("")
        for path in ("build/x", "new/build/y", "x.log", "src/out/dropped", "src/out/kept"):
            (top / path).parent.mkdir(parents=True, exist_ok=True)
            (top / path).write_text("x\n")
        (top / ".pytest_cache" / "v").mkdir(parents=True)
        (top / ".pytest_cache" / "v" / "lastfailed").write_text("{}")

    kept = kept_after(act, worktrees(repository), scratch, kept_in)
    assert paths_of(kept) == [".gitignore", "src/.gitignore", "src/out/kept"]


@pytest.mark.parametrize("rule", ["* -diff", "* binary", "[attr]diff -text\n* -diff", "* diff=x"])
def test_an_attribute_makes_no_text_binary(
    repository: Path, scratch: Path, kept_in: str, rule: str
) -> None:
    def act(top: Path) -> None:
        (top / ".gitattributes").write_text(f"{rule}\n")
        (top / "new.py").write_text("x\n" * 7)

    kept = kept_after(act, worktrees(repository), scratch, kept_in)
    assert [file.lines_added for file in kept.change.files if file.path == "new.py"] == [7]
    assert kept.change.binary_files == 0


def test_folders_are_held_to_the_rules_that_they_began_with(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    def act(top: Path) -> None:
        hides_by_a_rule_within(top)
        (top / "x.log").write_text("x\n")

    workspace = Workspace(kind=WorkspaceKind.FOLDER, source=str(repository))
    kept = kept_after(act, workspace, scratch, kept_in)
    assert paths_of(kept) == ["d/.gitignore", "d/deep/conftest.py"]


# ---- unknown is unknown


@pytest.mark.parametrize("act", [workspace_gone, workspace_replaced])
def test_a_workspace_that_is_gone_has_no_known_change(
    repository: Path, scratch: Path, kept_in: str, act: Callable[[Path], None]
) -> None:
    kept = kept_after(act, worktrees(repository), scratch, kept_in)
    assert "moved, deleted or replaced" in (kept.change.unknown or "")
    assert kept.change.tampering == ()


def test_a_large_text_file_is_not_binary_and_its_lines_are_unknown(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    def act(top: Path) -> None:
        (top / "large.txt").write_text("a line\n" * 1_600_000)
        with (top / "large.bin").open("wb") as large:
            large.truncate(11_000_000)

    kept = kept_after(act, worktrees(repository), scratch, kept_in)
    assert {file.path: file.binary for file in kept.change.files} == {
        "large.bin": True,
        "large.txt": False,
    }
    assert (kept.change.files_added, kept.change.binary_files) == (2, 1)
    assert kept.change.unknown == "the lines of 1 file (larger than 10 MB)"


def test_a_large_file_of_a_template_is_what_it_is_when_it_is_deleted(
    tmp_path: Path, scratch: Path, kept_in: str
) -> None:
    (tmp_path / "template").mkdir()
    (tmp_path / "template" / "large.txt").write_text("a line\n" * 1_600_000)
    (tmp_path / "template" / "large.bin").write_bytes(bytes(11_000_000))

    def act(top: Path) -> None:
        (top / "large.txt").unlink()
        (top / "large.bin").unlink()

    workspace = Workspace(kind=WorkspaceKind.FOLDER, source=str(tmp_path / "template"))
    kept = kept_after(act, workspace, scratch, kept_in)
    assert (kept.change.files_deleted, kept.change.binary_files) == (2, 1)
    assert kept.change.unknown == "the lines of 1 file (larger than 10 MB)"


def test_a_git_that_fails_leaves_what_is_sure(
    repository: Path,
    scratch: Path,
    kept_in: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "bin").mkdir()
    failing = tmp_path / "bin" / "git"
    failing.write_text(
        f"""#!/bin/sh
        case "$*" in *update-index*) echo "fatal: write: No space left on device" >&2; exit 128;;
        esac
        exec {shutil.which("git")} "$@"
        """
    )
    failing.chmod(0o755)

    def act(top: Path) -> None:
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
        (top / "a.txt").unlink()
        (top / "new.txt").write_text("new\n")
        (top / "src" / "b.py").touch()

    async def work(lease: Lease) -> KeptWorkspace:
        act(Path(lease.top))
        kept = await lease.keep(kept_in)
        monkeypatch.undo()
        return kept

    (kept,) = run(attempts(worktrees(repository), scratch, work))
    assert [(file.path, file.status) for file in kept.change.files] == [
        ("a.txt", "deleted"),
        ("new.txt", "added"),
    ]
    assert kept.change.unknown == (
        f"no space left in {scratch.parent} (PARAVAL_SCRATCH names another place)"
    )


def test_without_git_nothing_is_known(
    repository: Path, scratch: Path, kept_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(lease: Lease) -> KeptWorkspace:
        (Path(lease.top) / "new.txt").write_text("new\n")
        with monkeypatch.context() as patched:
            patched.setenv("PATH", "/nowhere")
            return await lease.keep(kept_in)

    (kept,) = run(attempts(worktrees(repository), scratch, work))
    assert "cannot start 'git'" in (kept.change.unknown or "")


def test_a_git_that_takes_too_long_leaves_it_unknown(
    repository: Path, scratch: Path, kept_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patches, "_PATIENCE_S", 0.0)
    kept = kept_after(
        lambda top: (top / "new.txt").write_text("new\n"), worktrees(repository), scratch, kept_in
    )
    assert "timed out after 0 s" in (kept.change.unknown or "")
    assert kept.change.files_added == 1


def test_more_than_can_be_looked_at_is_unknown(
    repository: Path, scratch: Path, kept_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stock, "_MOST_SEEN", 10)

    def act(top: Path) -> None:
        for number in range(20):
            (top / f"n{number}").write_text("x\n")

    kept = kept_after(act, worktrees(repository), scratch, kept_in)
    assert "too many new files to list" in (kept.change.unknown or "")
    assert kept.change.files_added == 10


@pytest.fixture(name="unprivileged")
def unprivileged_fixture(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of a user's for whom permissions count; root is nobody meanwhile."""
    place = Path(tempfile.mkdtemp())
    monkeypatch.setenv("HOME", str(place))
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(place, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield place
    finally:
        if is_root:
            os.seteuid(0)
        shutil.rmtree(place)


@pytest.mark.parametrize(
    ("shut", "words"),
    [
        ("src", "a folder cannot be read: src"),
        ("new", "a folder cannot be read: new"),
        (".", "a folder cannot be read: the workspace itself"),
        ("new/x", "the lines of 1 file (unreadable)"),
    ],
)
def test_what_cannot_be_read_is_unknown_and_not_deleted(
    unprivileged: Path, monkeypatch: pytest.MonkeyPatch, shut: str, words: str
) -> None:
    repository = unprivileged / "project"
    git(unprivileged, "init", "-q", str(repository))
    (repository / "src" / "deep").mkdir(parents=True)
    (repository / "src" / "deep" / "x").write_text("x\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "first")
    (unprivileged / "scratch").mkdir()
    monkeypatch.setenv(SCRATCH_VARIABLE, str(unprivileged / "scratch"))

    def act(top: Path) -> None:
        (top / "new").mkdir()
        (top / "new" / "x").write_text("x\n")
        (top / shut).chmod(0)

    with scratch_folder() as scratch:
        kept = kept_after(act, worktrees(repository), scratch.folder, str(unprivileged / "kept"))
    assert kept.change.unknown == words
    assert (kept.change.files_deleted, kept.change.tampering) == (0, ())
