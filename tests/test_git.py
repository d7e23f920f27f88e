"""A user's repository is read and borrowed from, and not a byte of it changes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from paraval.git.alternates import lender_of, tags_before, write_repository
from paraval.git.folders import folder_tree
from paraval.git.repositories import (
    branch_of,
    find_repository,
    has_folder,
    resolve,
    tree_entries,
    tree_notes,
    tree_of,
)
from paraval.git.run_git import GitError, check_git, run_git
from paraval.git.snapshots import snapshot, snapshot_tree

from .workspace_kit import fingerprint, git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("one\n")
    (folder / "src").mkdir()
    (folder / "src" / "b.py").write_text("two\n")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


def test_a_repository_is_found_from_any_folder_in_it(repository: Path) -> None:
    found = find_repository(repository / "src")
    assert (found.top, found.prefix, found.bare) == (str(repository), "src", False)
    assert found.git_dir == found.common_dir == str(repository / ".git")
    assert find_repository(repository).prefix == "."


def test_a_folder_is_in_a_commit_or_in_the_working_tree_or_in_neither(repository: Path) -> None:
    for name in ("new", "ignored", "empty"):
        (repository / name).mkdir()
    (repository / "new" / "x").write_text("x")
    (repository / "ignored" / "x.log").write_text("x")
    found = find_repository(repository)
    head = resolve(found, "HEAD")
    folders = (".", "src", "src/", "new", "ignored", "empty", "a.txt", "nowhere")
    assert [name for name in folders if has_folder(found, name, commit=head)] == [
        *(".", "src", "src/")
    ]
    assert [name for name in folders if has_folder(found, name, commit=None)] == [
        *(".", "src", "src/", "new")
    ]


def test_tags_are_taken_over_unless_there_are_very_many(repository: Path) -> None:
    found = find_repository(repository)
    head = resolve(found, "HEAD")
    assert tags_before(found, head) == b""
    git(repository, "tag", "v1")
    assert tags_before(found, head).splitlines()[1:] == [f"{head} refs/tags/v1".encode()]
    refs = "".join(f"create refs/tags/t{number} {head}\n" for number in range(1_000))
    subprocess.run(
        ["git", "-C", str(repository), "update-ref", "--stdin"], input=refs.encode(), check=True
    )
    assert tags_before(found, head) == b""


def test_a_worktree_of_the_users_own_has_the_objects_of_its_repository(repository: Path) -> None:
    git(repository, "worktree", "add", "-q", "../other", "-b", "other")
    found = find_repository(repository.parent / "other")
    assert found.common_dir == str(repository / ".git") != found.git_dir
    assert branch_of(found, "HEAD") == "other"
    assert Path(found.objects).is_dir()


def test_a_bare_repository_is_its_own_top_and_has_no_working_tree_to_take(
    repository: Path,
) -> None:
    git(repository, "clone", "-q", "--bare", ".", "../bare.git")
    found = find_repository(repository.parent / "bare.git")
    assert (found.bare, found.top) == (True, str(repository.parent / "bare.git"))
    assert resolve(found, "HEAD") == git(repository, "rev-parse", "HEAD")
    with pytest.raises(GitError, match="is bare"):
        snapshot_tree(found)


def test_refs_stand_for_commits_and_what_stands_for_none_is_said(repository: Path) -> None:
    found = find_repository(repository)
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "-am", "a tag", "v1")
    assert resolve(found, "v1") == resolve(found, "main") == resolve(found, head[:8]) == head
    assert tree_of(found, head) == git(repository, "rev-parse", "HEAD^{tree}")
    assert (branch_of(found, "HEAD"), branch_of(found, "main")) == ("main", "main")
    assert branch_of(found, "v1") is None
    for wrong in ("nowhere", "--help", "", "HEAD:a.txt"):
        with pytest.raises(GitError, match="not a branch, tag or commit") as caught:
            resolve(found, wrong)
        assert "branch --all" in str(caught.value)


def test_no_repository_no_commit_and_no_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="not in a git repository"):
        find_repository(tmp_path)
    with pytest.raises(GitError, match="no such folder"):
        find_repository(tmp_path / "gone")
    git(tmp_path, "init", "-q")
    with pytest.raises(GitError, match="no commits yet"):
        resolve(find_repository(tmp_path), "HEAD")
    with pytest.raises(GitError, match=r"inside a repository's \.git"):
        find_repository(tmp_path / ".git")


def test_a_repository_of_another_user_is_used_only_with_leave(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    try:
        os.chown(repository, 12345, 12345)
        os.chown(repository / ".git", 12345, 12345)
    except PermissionError:
        pytest.skip("only root can give a folder to another user")
    (repository / "sub").mkdir()
    for folder in (repository, repository / "sub"):
        with pytest.raises(GitError, match="belongs to another user") as caught:
            find_repository(folder)
        # A race file's problems are messages alone.
        advice = f"git config --global --add safe.directory {os.path.realpath(repository)}"
        assert caught.value.message.endswith(advice)
    (tmp_path / ".gitconfig").write_text(f"[safe]\ndirectory = {repository}\n")
    found = find_repository(repository)
    assert resolve(found, "HEAD")
    assert snapshot_tree(found)


def test_a_machine_without_git_and_one_with_an_old_git_are_told_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitError, match="not installed") as caught:
        check_git()
    assert "2.32" in str(caught.value)
    old = tmp_path / "git"
    old.write_text("#!/bin/sh\necho git version 2.20.1\n")
    old.chmod(0o755)
    with pytest.raises(GitError, match=r"too old: 2\.20"):
        check_git()


# ---- snapshots


def test_a_snapshot_has_changes_and_new_files_and_writes_nothing_into_the_repository(
    repository: Path, tmp_path: Path
) -> None:
    (repository / "a.txt").write_text("edited\n")
    (repository / "src" / "b.py").unlink()
    (repository / "new.txt").write_text("new\n")
    (repository / "x.log").write_text("ignored\n")
    before = fingerprint(repository)
    found = find_repository(repository)
    taken = snapshot(found, tmp_path / "objects")
    assert snapshot_tree(found) == taken.tree
    assert fingerprint(repository) == before
    write_repository(
        tmp_path / "b.git", lender_of(found, str(tmp_path / "objects")), head=taken.commit
    )
    entries = tree_entries(str(tmp_path / "b.git"), taken.tree)
    assert [entry.path for entry in entries] == [b".gitignore", b"a.txt", b"new.txt"]
    shown = run_git([f"--git-dir={tmp_path / 'b.git'}", "show", f"{taken.commit}:a.txt"])
    assert shown.stdout == b"edited\n"
    parent = run_git([f"--git-dir={tmp_path / 'b.git'}", "rev-parse", f"{taken.commit}^"])
    assert parent.stdout.decode().strip() == resolve(found, "HEAD")


def test_a_clean_working_tree_is_its_commit_and_the_same_one_is_the_same_commit(
    repository: Path, tmp_path: Path
) -> None:
    found = find_repository(repository)
    assert snapshot(found, tmp_path / "o1").commit == resolve(found, "HEAD")
    (repository / "a.txt").write_text("edited\n")
    first = snapshot(found, tmp_path / "o2")
    (repository / "a.txt").touch()
    assert snapshot(found, tmp_path / "o3") == first


def test_what_the_users_own_settings_ignore_is_not_in_a_snapshot(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    (tmp_path / "settings" / "git").mkdir(parents=True)
    (tmp_path / "settings" / "git" / "ignore").write_text(".idea/\n")
    (repository / ".git" / "info" / "exclude").write_text("mine.txt\n")
    (repository / ".idea").mkdir()
    (repository / ".idea" / "x").write_text("x")
    (repository / "mine.txt").write_text("x")
    found = find_repository(repository)
    assert snapshot_tree(found) == tree_of(found, "HEAD")


def test_nothing_in_a_repositorys_configuration_is_executed(
    repository: Path, tmp_path: Path
) -> None:
    told = tmp_path / "executed"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho $0 >> {told}\ncat\n")
    script.chmod(0o755)
    for name in ("core.fsmonitor", "filter.f.clean", "filter.f.process", "core.pager"):
        git(repository, "config", name, str(script))
    git(repository, "config", "core.hooksPath", str(tmp_path))
    for hook in ("post-index-change", "pre-commit", "post-checkout"):
        (tmp_path / hook).write_text(script.read_text())
        (tmp_path / hook).chmod(0o755)
    (repository / ".gitattributes").write_text("*.txt filter=f\n")
    (repository / "a.txt").write_text("edited\n")
    told.unlink(missing_ok=True)
    found = find_repository(repository)
    snapshot(found, tmp_path / "objects")
    resolve(found, "HEAD")
    assert not told.exists()


def test_repositories_within_a_working_tree_do_not_stop_a_snapshot(
    repository: Path, tmp_path: Path
) -> None:
    for name in ("empty", "full"):
        (repository / name).mkdir()
        git(repository / name, "init", "-q")
    (repository / "full" / "x").write_text("x")
    git(repository / "full", "add", "-A")
    git(repository / "full", "commit", "-qm", "x")
    (repository / "new.txt").write_text("new\n")
    found = find_repository(repository)
    taken = snapshot(found, tmp_path / "objects")
    write_repository(
        tmp_path / "b.git", lender_of(found, str(tmp_path / "objects")), head=taken.commit
    )
    entries = tree_entries(str(tmp_path / "b.git"), taken.tree)
    assert b"new.txt" in {entry.path for entry in entries}
    assert "submodules are empty folders in workspaces: full" in tree_notes(
        str(tmp_path / "b.git"), entries
    )


def test_files_that_are_handed_to_a_filter_are_told_of(repository: Path) -> None:
    (repository / ".gitattributes").write_text("*.bin filter=lfs diff=lfs -text\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "large files")
    found = find_repository(repository)
    (note,) = tree_notes(found.git_dir, tree_entries(found.git_dir, "HEAD"))
    assert "filters are not run" in note


def test_a_repository_of_sha256_is_borrowed_from_as_well(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    git(folder, "init", "-q", "--object-format=sha256")
    (folder / "a").write_text("a\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "a")
    (folder / "a").write_text("b\n")
    found = find_repository(folder)
    assert len(snapshot(found, tmp_path / "objects").commit) == 64


@pytest.mark.parametrize("name", ["with space", 'with "quotes"', "with:colon", "with\nline", "#x"])
def test_a_repository_may_be_called_anything(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a").write_text("a\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "a")
    (folder / "a").write_text("b\n")
    found = find_repository(folder)
    taken = snapshot(found, tmp_path / "objects")
    write_repository(
        tmp_path / "b.git", lender_of(found, str(tmp_path / "objects")), head=taken.commit
    )
    shown = run_git([f"--git-dir={tmp_path / 'b.git'}", "log", "--format=%s"])
    assert shown.stdout.splitlines()[-1] == b"a"


# ---- folders


def test_a_folders_hash_tells_contents_names_permissions_and_links(tmp_path: Path) -> None:
    folder = tmp_path / "template"
    (folder / "empty").mkdir(parents=True)
    (folder / "a").write_text("a")
    seen = {folder_tree(folder)}
    for change in (
        lambda: (folder / "a").write_text("b"),
        lambda: (folder / "a").chmod(0o755),
        lambda: (folder / "a").rename(folder / "c"),
        lambda: (folder / "link").symlink_to("c"),
        (folder / "empty").rmdir,
    ):
        change()
        seen.add(folder_tree(folder))
    assert len(seen) == 6
    (folder / ".git").mkdir()
    (folder / ".git" / "x").write_text("x")
    assert folder_tree(folder) in seen


def test_a_pipe_in_a_template_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(GitError, match="cannot be copied"):
        folder_tree(tmp_path)
