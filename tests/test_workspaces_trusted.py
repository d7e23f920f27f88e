"""What the engine's git reads is what the engine wrote, whatever an attempt does beside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paraval.records import Change, Workspace, WorkspaceKind
from paraval.workspaces.workspace import KeptWorkspace, Lease, WorkspaceError

from .workspace_kit import (  # noqa: F401 - fixtures, used by their names
    attempts,
    contents,
    git,
    kept_in_fixture,
    repository_fixture,
    run,
    scratch_fixture,
    worktrees,
)


@pytest.fixture(name="script")
def script_fixture(tmp_path: Path) -> Path:
    """Tells in `executed` that it was run."""
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho $0 >> {tmp_path}/executed\ncat\n")
    script.chmod(0o755)
    return script


def trusted(top: Path) -> Path:
    """As an attempt finds it that looks around."""
    return top.parent.parent.parent / "trusted"


def in_config(top: Path, script: Path) -> None:
    for git_dir in ("trusted.git", "as-it-is.git"):
        with (trusted(top) / git_dir / "config").open("a") as config:
            config.write(f'[filter "f"]\nclean = {script}\nsmudge = {script}\n')
        (trusted(top) / git_dir / "info" / "attributes").write_text("* filter=f\n")


def in_an_included_config(top: Path, script: Path) -> None:
    (top.parent / "more").write_text(f'[filter "f"]\nclean = {script}\nsmudge = {script}\n')
    for git_dir in ("trusted.git", "as-it-is.git"):
        place = trusted(top) / git_dir
        kept = (place / "config").stat()
        content = (place / "config").read_text()
        (place / "config").unlink()
        (place / "config").write_text(f"{content}[include]\npath = {top.parent}/more\n")
        os.utime(place / "config", ns=(kept.st_atime_ns, kept.st_mtime_ns))
        (place / "info" / "attributes").unlink()


def in_another_repository(top: Path, script: Path) -> None:
    for git_dir in ("trusted.git", "as-it-is.git"):
        place = trusted(top) / git_dir
        place.rename(place.with_name(f"{git_dir}.old"))
        git(top, "init", "-q", "--bare", str(place))
        git(place, "config", "filter.f.clean", str(script))
        git(place, "config", "filter.f.smudge", str(script))


@pytest.mark.parametrize("act", [in_config, in_an_included_config, in_another_repository])
def test_the_engines_git_runs_nothing_that_an_attempt_wrote_into_its_repository(
    repository: Path,
    scratch: Path,
    kept_in: str,
    script: Path,
    act: Callable[[Path, Path], None],
) -> None:
    async def work(lease: Lease) -> KeptWorkspace:
        top = Path(lease.top)
        (top / ".gitattributes").write_text("* filter=f\n")
        (top / "a.txt").write_text("edited\n")
        (top / "src" / "b.py").unlink()
        act(top, script)
        return await lease.keep(kept_in)

    async def look(lease: Lease) -> KeptWorkspace:
        return await lease.keep(kept_in)

    first, second = run(attempts(worktrees(repository), scratch, work, look))
    assert not (script.parent / "executed").exists()
    assert "paraval's own files beside the workspaces" in "".join(first.change.tampering)
    assert "trusted.git" in "".join(first.change.tampering)
    assert (first.change.files_in_all, first.change.unknown) == (3, None)
    assert second.change == Change()


def test_what_is_changed_there_after_a_look_is_not_obeyed_when_the_slot_is_cleaned(
    repository: Path, scratch: Path, kept_in: str, script: Path
) -> None:
    async def work(lease: Lease) -> None:
        (Path(lease.top) / ".gitattributes").write_text("* filter=f\n")
        (Path(lease.top) / "a.txt").write_text("edited\n")
        await lease.keep(kept_in)
        in_config(Path(lease.top), script)

    async def look(lease: Lease) -> Any:
        return contents(Path(lease.top)), await lease.keep(kept_in)

    _, (found, kept) = run(attempts(worktrees(repository), scratch, work, look))
    assert found == contents(repository)
    assert kept.change == Change()
    assert not (script.parent / "executed").exists()


def hide_in_the_index(top: Path) -> None:
    index = trusted(top) / "1.index"
    argv = (f"--git-dir={trusted(top)}/trusted.git", f"--work-tree={top}")
    os.environ["GIT_INDEX_FILE"] = str(index)
    try:
        git(top, *argv, "update-index", "--add", "a.txt", "cheat.py")
    finally:
        del os.environ["GIT_INDEX_FILE"]


def hide_by_a_rule(top: Path) -> None:
    (trusted(top) / "rules" / ".gitignore").write_text("*\n")


def pipe_for_the_index(top: Path) -> None:
    (trusted(top) / "1.index").unlink()
    os.mkfifo(trusted(top) / "1.index")


@pytest.mark.parametrize("act", [hide_in_the_index, hide_by_a_rule, pipe_for_the_index])
def test_nothing_hides_by_what_is_done_to_the_engines_own_files(
    repository: Path, scratch: Path, kept_in: str, act: Callable[[Path], None]
) -> None:
    async def work(lease: Lease) -> KeptWorkspace:
        top = Path(lease.top)
        (top / "a.txt").write_text("forged\n")
        (top / "cheat.py").write_text("cheat\n")
        act(top)
        return await lease.keep(kept_in)

    async def look(lease: Lease) -> Any:
        return contents(Path(lease.top)), await lease.keep(kept_in)

    kept, (found, after) = run(attempts(worktrees(repository), scratch, work, look))
    assert [file.path for file in kept.change.files] == ["a.txt", "cheat.py"]
    assert kept.change.tampering
    assert found == contents(repository)
    assert after.change == Change()


def test_an_attempt_that_ran_before_is_not_blamed(
    repository: Path, scratch: Path, kept_in: str, script: Path
) -> None:
    async def look(lease: Lease) -> KeptWorkspace:
        return await lease.keep(kept_in)

    async def work(lease: Lease) -> KeptWorkspace:
        in_config(Path(lease.top), script)
        return await lease.keep(kept_in)

    before, culprit, after = run(attempts(worktrees(repository), scratch, look, work, look))
    assert culprit.change.tampering
    assert before.change == after.change == Change()


# ---- folders


def folders(template: Path) -> Workspace:
    return Workspace(kind=WorkspaceKind.FOLDER, source=str(template))


async def forges(lease: Lease) -> KeptWorkspace:
    (trusted(Path(lease.top)) / "template" / "a.txt").write_text("forged\n")
    return await lease.keep(os.devnull)


def test_a_template_that_an_attempt_changed_is_taken_anew(
    repository: Path, scratch: Path, kept_in: str, script: Path
) -> None:
    async def work(lease: Lease) -> KeptWorkspace:
        top = Path(lease.top)
        (top / "a.txt").write_text("edited\n")
        (top / ".gitattributes").write_text("* filter=f\n")
        await lease.keep(kept_in)
        with (trusted(top) / "trusted.git" / "config").open("a") as config:
            config.write(f'[filter "f"]\nclean = {script}\n')
        (trusted(top) / "trusted.git" / "info" / "attributes").unlink()
        return await lease.keep(kept_in)

    async def look(lease: Lease) -> Any:
        return (Path(lease.top) / "a.txt").read_text(), await lease.keep(kept_in)

    first, second, third = run(attempts(folders(repository), scratch, forges, work, look))
    assert "template/a.txt" in "".join(first.change.tampering)
    assert "trusted.git/config" in "".join(second.change.tampering)
    assert second.change.files_in_all == 2
    assert third == ("one\ntwo\n", KeptWorkspace(change=Change()))
    assert not (script.parent / "executed").exists()


def test_a_template_that_cannot_be_had_again_ends_the_run(
    repository: Path, scratch: Path, tmp_path: Path
) -> None:
    shutil.copytree(repository, tmp_path / "template", symlinks=True)

    async def work(lease: Lease) -> KeptWorkspace:
        (tmp_path / "template" / "a.txt").write_text("another\n")
        return await forges(lease)

    with pytest.raises(WorkspaceError, match="changed the copy of the template") as raised:
        run(attempts(folders(tmp_path / "template"), scratch, work, work))
    assert raised.value.lasting
