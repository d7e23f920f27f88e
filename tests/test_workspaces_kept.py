"""What is kept of a workspace: the change as a patch, and what was done to its `.git`."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paraval.workspaces import changed_files as selection, patches
from paraval.workspaces.workspace import Lease

from .workspace_kit import (  # noqa: F401 - fixtures, used by their names
    attempts,
    contents,
    git,
    git_is_gone,
    kept_in_fixture,
    odd_names,
    repository_fixture,
    repository_within,
    run,
    scratch_fixture,
    worktrees,
)


def test_a_patch_has_all_that_was_changed_committed_or_not_and_can_be_applied(
    repository: Path, scratch: Path, kept_in: str, tmp_path: Path
) -> None:
    async def work(lease: Lease) -> tuple[Any, dict[str, tuple[int, bytes]]]:
        top = Path(lease.top)
        (top / "a.txt").write_text("one\nthree\nfour\n")
        git(top, "commit", "-qam", "committed")
        (top / "src" / "b.py").unlink()
        (top / "image.bin").write_bytes(bytes(300))
        (top / "new").mkdir()
        (top / "new" / os.fsdecode(b'odd\n"name"')).write_text("x\n")
        (top / "new" / "run").write_text("x")
        (top / "new" / "run").chmod(0o755)
        (top / "link").unlink()
        (top / "link").symlink_to("src")
        (top / "x.log").write_text("ignored\n")
        kept = await lease.keep(kept_in)
        (top / "x.log").unlink()
        return kept, contents(top)

    ((kept, after),) = run(attempts(worktrees(repository), scratch, work))
    change = kept.change
    assert (change.files_added, change.files_changed, change.files_deleted) == (2, 3, 1)
    assert (change.binary_files, change.lines_added, change.lines_deleted) == (1, 5, 3)
    assert [file.status for file in change.files if file.path == "src/b.py"] == ["deleted"]
    assert change.tampering == ()
    git(repository, "clone", "-q", ".", str(tmp_path / "clone"))
    assert kept.patch is not None
    git(tmp_path / "clone", "apply", kept.patch)
    assert contents(tmp_path / "clone") == after


def test_an_edit_of_the_same_size_right_after_the_checkout_is_in_the_patch(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    async def work(lease: Lease) -> Any:
        top = Path(lease.top)
        (top / "a.txt").write_text("one\nowt\n")
        # git compares times in whole seconds: the patch is made in a later one than the edit.
        await asyncio.sleep(1.1)
        return await lease.keep(kept_in)

    (kept,) = run(attempts(worktrees(repository), scratch, work))
    assert [file.path for file in kept.change.files] == ["a.txt"]
    assert kept.patch is not None


def test_what_cannot_be_in_a_patch_is_told(repository: Path, scratch: Path, kept_in: str) -> None:
    async def work(lease: Lease) -> Any:
        top = Path(lease.top)
        os.mkfifo(top / "pipe")
        os.mkfifo(top / ".gitattributes")
        (top / "src" / ".gitignore").mkdir()
        (top / "a.txt").unlink()
        os.mkfifo(top / "a.txt")
        with (top / "large").open("wb") as large:
            large.truncate(11_000_000)
        repository_within(top)
        odd_names(top)
        return await lease.keep(kept_in)

    (kept,) = run(attempts(worktrees(repository), scratch, work))
    told = "\n".join(kept.notes)
    for words in ("pipes, sockets", "block on that pipe", "larger than 10 MB", "within/.git"):
        assert words in told
    assert kept.change.unknown is None
    by_path = {file.path: file for file in kept.change.files}
    assert by_path["a.txt"].status == "deleted"
    assert by_path["large"].binary
    assert by_path["within/x"].lines_added == 1
    assert "\\xff\\xfe" in by_path
    assert kept.patch is not None


def test_a_change_without_bounds_is_cut_and_counted(
    repository: Path, scratch: Path, kept_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "MOST_FILES", 20)
    monkeypatch.setattr(patches, "MOST_LISTED", 10)
    monkeypatch.setattr(selection, "LARGEST_PATCH_BYTES", 5_000)

    async def many(lease: Lease) -> Any:
        for i in range(50):
            (Path(lease.top) / f"n{i}").write_text("x\n")
        return await lease.keep(kept_in)

    async def much(lease: Lease) -> Any:
        for i in range(5):
            (Path(lease.top) / f"n{i}").write_text("x\n" * 1_000)
        return await lease.keep(kept_in)

    first, second = run(attempts(worktrees(repository), scratch, many, much))
    assert (first.change.files_added, len(first.change.files)) == (50, 10)
    assert first.change.lines_added == 20
    assert "30 (beyond the first 20 files)" in "".join(first.notes)
    assert first.change.unknown == "the lines of 30 files (beyond the first 20 files)"
    assert second.change.files_added == 5
    assert "more than" in "".join(second.notes)
    assert Path(second.patch).stat().st_size <= 5_000


def test_an_encoding_that_git_cannot_convert_does_not_lose_the_patch(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    async def work(lease: Lease) -> Any:
        (Path(lease.top) / ".gitattributes").write_text("*.u working-tree-encoding=UTF-16\n")
        (Path(lease.top) / "x.u").write_bytes(b"\x00odd")
        return await lease.keep(kept_in)

    (kept,) = run(attempts(worktrees(repository), scratch, work))
    assert kept.change.files_added == 2
    assert "byte for byte" in "".join(kept.notes)


def test_line_ends_that_git_converts_are_no_change(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    (repository / "dos.txt").write_bytes(b"a\r\nb\r\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "as it is")
    (repository / ".gitattributes").write_text("* text=auto\n")
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "-qm", "from now on")

    async def work(lease: Lease) -> Any:
        (Path(lease.top) / "dos.txt").write_bytes(b"a\r\nb\r\nc\r\n")
        (Path(lease.top) / "a.txt").write_bytes(b"one\r\ntwo\r\n")
        return await lease.keep(kept_in)

    (kept,) = run(attempts(worktrees(repository), scratch, work))
    assert [(file.path, file.lines_added) for file in kept.change.files] == [("dos.txt", 1)]


# ---- tampering


def _set(name: str, value: str = "/tmp/x") -> Callable[[Path], Any]:
    return lambda top: git(top, "config", name, value)


def _config_of_worktree(top: Path) -> None:
    git(top, "config", "extensions.worktreeConfig", "true")
    git(top, "config", "--worktree", "core.hooksPath", "/tmp/x")


def _put_in_hook(top: Path) -> None:
    (top / ".git" / "hooks").mkdir()
    (top / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\n")


def _change_alternates(top: Path) -> None:
    (top / ".git" / "objects" / "info" / "alternates").write_text("/tmp\n")


def _git_file(top: Path) -> None:
    shutil.rmtree(top / ".git")
    (top / ".git").write_text("gitdir: /tmp/x\n")


def _git_link(top: Path) -> None:
    (top / ".git").rename(top / "moved")
    (top / ".git").symlink_to("moved")


def _config_pipe(top: Path) -> None:
    (top / ".git" / "config").unlink()
    os.mkfifo(top / ".git" / "config")


def _git_pipe(top: Path) -> None:
    shutil.rmtree(top / ".git")
    os.mkfifo(top / ".git")


def _write_much_before(top: Path) -> None:
    config = top / ".git" / "config"
    kept = config.read_text()
    config.write_text(kept + "# nothing\n" * 120_000 + "[core]\nhooksPath = /tmp/x\n")


def _attributes(top: Path) -> None:
    (top / ".git" / "info" / "attributes").write_text("* filter=x\n")


def _two_urls(top: Path) -> None:
    git(top, "config", "remote.origin.url", "ext::sh -c x")
    git(top, "config", "--add", "remote.origin.url", "https://example.org/x")


EXT = "ext::sh -c x"


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (_write_much_before, "made .git/config longer than 1 MB"),
        (_attributes, "put .git/info/attributes in"),
        (_two_urls, "set remote.origin.url in .git/config"),
        (_git_pipe, "replaced .git by a file"),
        (_set("init.templateDir"), "set init.templatedir in .git/config"),
        (_set("branch.main.remote", EXT), "set branch.main.remote in .git/config"),
        (_set("remote.pushDefault", EXT), "set remote.pushdefault in .git/config"),
        (_set("submodule.x.url", EXT), "set submodule.x.url in .git/config"),
        (_set("url.ext::x.insteadOf", "https:"), "set url.ext::x.insteadof in .git/config"),
        (_set("protocol.ext.allow", "always"), "set protocol.ext.allow in .git/config"),
        (_set("core.gitProxy"), "set core.gitproxy in .git/config"),
        (_set("alias.st", "-c core.pager=x log"), "set alias.st in .git/config"),
        (_set("core.fsmonitor"), "set core.fsmonitor in .git/config"),
        (_set("core.hooksPath"), "set core.hookspath in .git/config"),
        (_set("filter.x.clean"), "set filter.x.clean in .git/config"),
        (_set("alias.st", "!sh -c x"), "set alias.st in .git/config"),
        (_set("submodule.x.update", "!x"), "set submodule.x.update in .git/config"),
        (_set("remote.origin.uploadpack"), "set remote.origin.uploadpack in .git/config"),
        (_set("credential.helper"), "set credential.helper in .git/config"),
        (_set("core.sshCommand"), "set core.sshcommand in .git/config"),
        (_set("diff.x.textconv"), "set diff.x.textconv in .git/config"),
        (_config_of_worktree, "set core.hookspath in .git/config.worktree"),
        (_set("include.path"), "set include.path in .git/config"),
        (_put_in_hook, "added a hook: pre-commit"),
        (_change_alternates, "changed where .git reads its objects"),
        (git_is_gone, "deleted .git"),
        (_git_file, "replaced .git by a file"),
        (_git_link, "replaced .git by a link"),
        (_config_pipe, "deleted .git/config, or made it unreadable"),
    ],
)
def test_what_no_plain_use_of_git_does_is_tampering(
    repository: Path, scratch: Path, kept_in: str, act: Callable[[Path], Any], words: str
) -> None:
    async def work(lease: Lease) -> Any:
        act(Path(lease.top))
        return await lease.keep(kept_in)

    async def look(lease: Lease) -> Any:
        return await lease.keep(kept_in)

    first, second = run(attempts(worktrees(repository), scratch, work, look))
    assert len(first.change.tampering) == 1
    assert words in first.change.tampering[0]
    assert second.change.tampering == ()


def test_plain_use_of_git_is_no_tampering(repository: Path, scratch: Path, kept_in: str) -> None:
    async def work(lease: Lease) -> Any:
        top = Path(lease.top)
        git(top, "config", "user.name", "An Agent")
        (top / "a.txt").write_text("edited\n")
        git(top, "stash")
        git(top, "stash", "pop")
        git(top, "checkout", "-qb", "feature")
        git(top, "commit", "-qam", "work")
        git(top, "branch", "-m", "renamed")
        git(top, "tag", "v1")
        git(top, "gc", "-q")
        git(top, "worktree", "add", "-q", "../beside")
        git(top, "config", "alias.st", "status")
        git(top, "remote", "add", "origin", str(repository))
        git(top, "fetch", "-q", "origin")
        git(top, "branch", "-q", "--set-upstream-to=origin/main")
        git(top, "config", "submodule.x.url", "https://example.org/x")
        git(top, "config", "submodule.x.active", "true")
        git(top, "init", "-q")
        git(top, "sparse-checkout", "set", "--no-cone", "/*")
        return await lease.keep(kept_in)

    (kept,) = run(attempts(worktrees(repository), scratch, work))
    assert kept.change.tampering == ()
    assert kept.change.files_changed == 1


def test_nothing_that_an_attempt_configures_is_executed_by_the_engine(
    repository: Path, scratch: Path, kept_in: str, tmp_path: Path
) -> None:
    told = tmp_path / "executed"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho $0 >> {told}\ncat\n")
    script.chmod(0o755)

    async def work(lease: Lease) -> None:
        top = Path(lease.top)
        with (top / ".git" / "config").open("a") as config:
            config.write(
                f"[core]\nfsmonitor = {script}\nhooksPath = {tmp_path}\npager = {script}\n"
            )
            config.write(f'[filter "f"]\nclean = {script}\nsmudge = {script}\n')
            config.write(f'[diff "d"]\ntextconv = {script}\ncommand = {script}\n')
        (top / ".gitattributes").write_text("* filter=f diff=d\n")
        (top / "a.txt").write_text("edited\n")
        await lease.keep(kept_in)

    run(attempts(worktrees(repository), scratch, work, work, work))
    assert not told.exists()
