"""An attempt's changes as a patch, committed or not, with counts.

Compared with the tree that the attempt started from, by a git that the attempt cannot reach.
Whatever is in the workspace, this ends in time with a result: what is too large, too much or not a
file is noted. `changed_files` selects the files.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paraval.git.alternates import alternates_variable, lend_copies
from paraval.git.run_git import DiskFullError, GitError, failure, last_line, must_git, run_git
from paraval.processes.quick import QuickResult
from paraval.records import Change, FileChange
from paraval.workspaces import changed_files as selecting
from paraval.workspaces.changed_files import (
    ChangedFiles,
    WorkspaceState,
    not_looked_into,
    select,
    shown,
)
from paraval.workspaces.inventory import InventoryDifferences
from paraval.workspaces.workspace import KEY_IN_PATCH, KeptWorkspace, in_words

PATCH_NAME = "changes.patch"
MOST_LISTED = 1_000
_PATIENCE_S = 120.0
_CUT = "the patch was cut"
_NOT_WHOLE = (_CUT, selecting.LEFT_OUT, KEY_IN_PATCH)
"""How notes begin about changes that a patch does not have."""
_STATUSES = {"A": "added", "D": "deleted"}
_ANY_NAME = ("-c", "core.protectNTFS=false", "-c", "core.protectHFS=false")
"""Here, a name that another system could take for `.git` is an ordinary file."""


def keep_change(
    scene: WorkspaceState, differences: InventoryDifferences, folder: str
) -> KeptWorkspace:
    """Write the patch into the folder; returns its summary. Raises GitError or OSError."""
    selection = select(scene, differences)
    patch = str(Path(folder, PATCH_NAME))
    try:
        files = _write_patch(scene, selection, patch)
    except (GitError, OSError) as error:
        selection.unknown.append(in_words(error))
        return _kept(selection, _surely_changed(selection))
    _list_what_git_passed_over(selection, files)
    if not files:
        return _kept(selection, [])
    selection.notes += _cut(patch)
    return replace(_kept(selection, files), patch=patch)


def _write_patch(scene: WorkspaceState, selection: ChangedFiles, patch: str) -> list[FileChange]:
    """A summary of the patch; an empty patch is not written."""
    Path(patch).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=Path(scene.baseline.git_dir).parent) as temporary:
        stage = _PatchIndex(scene, Path(temporary))
        selection.notes += stage.add(selection)
        files = stage.counted()
        if files:
            stage.write_patch(patch)
    return files


def apply_patch(top: str, patch: str, *, git_dir: str | None = None) -> None:
    """Repeat the changes of a patch in a workspace as it started. Raises GitError.

    `git_dir`: for a workspace after an attempt, whose own `.git` could make git run anything.
    """
    place = [] if git_dir is None else [f"--git-dir={git_dir}", f"--work-tree={top}"]
    ended = run_git(
        [*_ANY_NAME, *place, "apply", "--whitespace=nowarn", patch],
        # A folder is no part of a repository that happens to be around it.
        env={"GIT_CEILING_DIRECTORIES": str(Path(top).parent)},
        cwd=top,
        timeout=_PATIENCE_S,
    )
    if not ended.is_well:
        which = "its patch" if git_dir is None else f"the hidden patch {patch}"
        raise failure(f"{which} does not apply", ended)


def why_not_whole(change: Change, patch: str | None, notes: Sequence[str]) -> str | None:
    """Why an attempt's patch does not have all of its changes; None: it has."""
    if change.unknown is not None:
        return f"its changes are not fully known: {change.unknown}"
    if change.files_in_all and patch is None:
        return "its patch is missing"
    return next((note for note in notes if note.startswith(_NOT_WHOLE)), None)


def _surely_changed(selection: ChangedFiles) -> list[FileChange]:
    """Without reading them: an existing file may only have been touched."""
    added = [not_looked_into(path, "added") for path in sorted(selection.new)]
    return added + [not_looked_into(path, "deleted") for path in selection.removed]


def _list_what_git_passed_over(selection: ChangedFiles, files: list[FileChange]) -> None:
    """git silently skips files with names such as `.GIT`."""
    told = {file.path for file in files}
    passed_over = [path for path in sorted(selection.new) if shown(path) not in told]
    if passed_over:
        selection.listed += [not_looked_into(path, "added") for path in passed_over]
        why = f"git accepts no file with that name: {shown(passed_over[0])}"
        selection.unknown.append(f"the lines of {len(passed_over):,} files ({why})")


class _PatchIndex:
    """An index and objects for one patch."""

    def __init__(self, scene: WorkspaceState, temporary: Path) -> None:
        self._scene = scene
        self._index = temporary / "index"
        self._objects = temporary / "objects"
        self._objects.mkdir()
        self._env = {
            "GIT_INDEX_FILE": str(self._index),
            "GIT_OBJECT_DIRECTORY": str(self._objects),
        }
        self._env_to_read = {
            **self._env,
            **alternates_variable(f"{scene.baseline.git_dir}/objects"),
        }
        self._git_dir = scene.baseline.git_dir
        self._tree = scene.baseline.tree
        """What the index is compared with."""

    def add(self, selection: ChangedFiles) -> list[str]:
        """Update the index from the workspace; returns notes."""
        self._copy_what_may_be_read(selection)
        ended = self._add_by(self._scene.baseline.git_dir, selection)
        if ended.is_well:
            return []
        self._git_dir = self._scene.baseline.git_dir_as_it_is
        again = self._add_by(self._git_dir, selection)
        if again.is_well:
            note = "the patch has files byte for byte: git cannot convert them as .gitattributes"
            return [f"{note} asks for ({last_line(ended)})"]
        raise failure("git cannot list the changes", again)

    def _copy_what_may_be_read(self, selection: ChangedFiles) -> None:
        baseline = self._scene.baseline
        hashes = [baseline.hashes[path] for path in selection.written if path in baseline.hashes]
        # Including its temporary files: nothing is ever written to the repository itself.
        lend_copies(
            [f"--git-dir={baseline.git_dir}"], hashes, str(self._objects), self._env_to_read
        )

    def _add_by(self, git_dir: str, selection: ChangedFiles) -> QuickResult:
        # With its time, by which git knows that a file of the same second may have changed since.
        shutil.copy2(self._scene.baseline.index, self._index)
        filled = _filled(self._scene.baseline.submodules, selection.written)
        if filled:
            self._leave_out(git_dir, filled)
        ended = self._update(git_dir, ("--force-remove",), selection.removed)
        if ended.is_well:
            ended = self._update(git_dir, ("--add", "--replace"), selection.written)
        return ended

    def _leave_out(self, git_dir: str, submodules: list[bytes]) -> None:
        """From both sides: an index cannot contain a submodule and files in it."""
        ended = self._update(git_dir, ("--force-remove",), submodules)
        if not ended.is_well:
            raise failure("git cannot read a submodule's folder", ended)
        self._tree = (
            must_git(
                [f"--git-dir={git_dir}", "write-tree", "--missing-ok"],
                doing="git cannot read a submodule's folder",
                env=self._env,
            )
            .decode()
            .strip()
        )

    def _update(self, git_dir: str, arguments: tuple[str, ...], paths: list[bytes]) -> QuickResult:
        if not paths:
            return QuickResult(exit_code=0)
        return run_git(
            [
                *(*_ANY_NAME, f"--git-dir={git_dir}", f"--work-tree={self._scene.top}"),
                *("update-index", *arguments, "-z", "--stdin"),
            ],
            env=self._env,
            stdin=b"".join(path + b"\0" for path in paths),
            timeout=_PATIENCE_S,
        )

    def counted(self) -> list[FileChange]:
        """The change to each file."""
        return _read_counts(self._diff("--raw", "--numstat", "-z", "--abbrev=40"))

    def write_patch(self, path: str) -> None:
        try:
            self._diff("--binary", "--full-index", f"--output={path}")
        except DiskFullError as error:
            # Not the workspaces' disk, which has a message of its own.
            raise GitError(f"no space left in {Path(path).parent}") from error

    def _diff(self, *arguments: str) -> bytes:
        return must_git(
            [
                *(f"--git-dir={self._git_dir}", f"--work-tree={self._scene.top}"),
                *("diff", "--cached", "--no-renames", "--no-ext-diff", "--no-textconv"),
                *("--no-color", "--ignore-submodules=none", *arguments),
                *(self._tree, "--"),
            ],
            doing="git cannot list the changes",
            env=self._env_to_read,
            timeout=_PATIENCE_S,
        )


def _filled(submodules: frozenset[bytes], paths: list[bytes]) -> list[bytes]:
    """Submodules whose folder contains files."""
    if not submodules:
        return []
    above = {path[: at.start()] for path in paths for at in re.finditer(b"/", path)}
    return sorted(submodules & above)


# ---- the summary


def _read_counts(stdout: bytes) -> list[FileChange]:
    """Raw records, each `:modes hashes status` and a path; then counts with a path each."""
    statuses: dict[bytes, str] = {}
    files = []
    fields = iter(stdout.split(b"\0"))
    for part in fields:
        if part.startswith(b":"):
            letter = part.rpartition(b" ")[2].decode()[:1]
            statuses[next(fields)] = _STATUSES.get(letter, "changed")
        elif part:
            added, deleted, path = part.split(b"\t", 2)
            files.append(
                FileChange(
                    path=shown(path),
                    status=statuses.get(path, "changed"),
                    lines_added=None if added == b"-" else int(added),
                    lines_deleted=None if deleted == b"-" else int(deleted),
                    binary=added == b"-",
                )
            )
    return files


def _kept(selection: ChangedFiles, in_patch: list[FileChange]) -> KeptWorkspace:
    files = sorted(in_patch + selection.listed, key=lambda file: file.path)
    statuses = [file.status for file in files]
    change = Change(
        files_added=statuses.count("added"),
        files_changed=statuses.count("changed"),
        files_deleted=statuses.count("deleted"),
        binary_files=sum(file.binary for file in files),
        lines_added=sum(file.lines_added or 0 for file in files),
        lines_deleted=sum(file.lines_deleted or 0 for file in files),
        files=tuple(files[:MOST_LISTED]),
        unknown="; ".join(selection.unknown) or None,
    )
    return KeptWorkspace(change=change, notes=tuple(selection.notes))


def _cut(patch: str) -> list[str]:
    """Cut a patch that is too large after its last complete file."""
    size = Path(patch).stat().st_size
    largest = selecting.LARGEST_PATCH_BYTES
    if size <= largest:
        return []
    with Path(patch).open("r+b") as file:
        head = file.read(largest)
        end = head.rfind(b"\ndiff --git ") + 1
        file.truncate(end or largest)
    return [f"{_CUT}: it had {size / 1e6:,.0f} MB"]
