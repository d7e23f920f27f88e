"""What an attempt changed: a patch of it all, whether it was committed or not, and its counts.

Told against the tree that the attempt began with, by a git that the attempt cannot reach. Whatever
is in the workspace, this ends in time and with something to tell: what is too large, too much or
no file at all is said to be so.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from paraval.git.borrowing import alternates_variable, lend_copies
from paraval.git.running import GitError, last_line, must_git, run_git
from paraval.isolation import Change, FileChange
from paraval.processes.quick import QuickEnd
from paraval.workspaces.sources import LARGEST_HASHED_BYTES, Baseline, Layout
from paraval.workspaces.stock import Differences, Stock, special_files
from paraval.workspaces.workspace import Kept

PATCH_NAME = "changes.patch"
MOST_FILES = 10_000
MOST_LISTED = 1_000
LARGEST_PATCH_BYTES = 50_000_000
_PATIENCE_S = 120.0
_READ_BY_GIT = (b".gitignore", b".gitattributes", b".gitmodules")
_STATUSES = {"A": "added", "D": "deleted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A workspace after an attempt, and what it was before."""

    top: str
    layout: Layout
    """What it began with."""
    stock: Stock
    """With what `setup` left, which is no change of the attempt's."""
    baseline: Baseline


@dataclass(slots=True)
class _Selection:
    """What goes into the patch, and what is only listed."""

    removed: list[bytes] = field(default_factory=list)
    written: list[bytes] = field(default_factory=list)
    listed: list[FileChange] = field(default_factory=list)
    """Not looked into."""
    notes: list[str] = field(default_factory=list)


def keep_change(scene: Scene, differences: Differences, folder: str) -> Kept:
    """Write the patch into the folder, and tell what is in it. Raises GitError or OSError."""
    notes = _clear_the_way(scene, differences)
    untracked, more_notes = _untracked(scene, differences)
    selection = _select(scene, differences, untracked)
    notes += more_notes + selection.notes
    Path(folder).mkdir(parents=True, exist_ok=True)
    patch = str(Path(folder, PATCH_NAME))
    with tempfile.TemporaryDirectory(dir=Path(scene.baseline.git_dir).parent) as temporary:
        stage = _Stage(scene, Path(temporary))
        notes += stage.add(selection)
        files = stage.counted()
        if files:
            stage.write_patch(patch)
    if not files:
        return Kept(change=_change([], selection.listed), notes=tuple(notes))
    notes += _cut(patch)
    return Kept(change=_change(files, selection.listed), patch=patch, notes=tuple(notes))


class _Stage:
    """An index and objects for one patch."""

    def __init__(self, scene: Scene, temporary: Path) -> None:
        self._scene = scene
        self._index = temporary / "index"
        self._objects = temporary / "objects"
        self._objects.mkdir()
        self._env = {
            "GIT_INDEX_FILE": str(self._index),
            "GIT_OBJECT_DIRECTORY": str(self._objects),
        }
        self._git_dir = scene.baseline.git_dir

    def add(self, selection: _Selection) -> list[str]:
        """Bring the index to where the workspace is; tells what was remarkable."""
        self._copy_what_may_be_read(selection)
        ended = self._add_by(self._scene.baseline.git_dir, selection)
        if ended.is_well:
            return []
        self._git_dir = self._scene.baseline.git_dir_as_it_is
        again = self._add_by(self._git_dir, selection)
        if again.is_well:
            note = "the patch holds files byte for byte: git cannot convert them as .gitattributes"
            return [f"{note} asks for ({last_line(ended)})"]
        raise GitError(f"git cannot tell what was changed: {last_line(again)}")

    def _copy_what_may_be_read(self, selection: _Selection) -> None:
        baseline = self._scene.baseline
        hashes = [baseline.hashes[path] for path in selection.written if path in baseline.hashes]
        lend_copies([f"--git-dir={baseline.git_dir}"], hashes, str(self._objects))

    def _add_by(self, git_dir: str, selection: _Selection) -> QuickEnd:
        shutil.copyfile(self._scene.baseline.index, self._index)
        ended = QuickEnd(exit_code=0)
        for arguments, paths in (
            (("--force-remove",), selection.removed),
            (("--add", "--replace"), selection.written),
        ):
            if paths and ended.is_well:
                ended = run_git(
                    [
                        *(f"--git-dir={git_dir}", f"--work-tree={self._scene.top}"),
                        *("update-index", *arguments, "-z", "--stdin"),
                    ],
                    env=self._env,
                    stdin=b"".join(path + b"\0" for path in paths),
                    timeout=_PATIENCE_S,
                )
        return ended

    def counted(self) -> list[FileChange]:
        """What became of each file."""
        return _read_counts(self._diff("--raw", "--numstat", "-z", "--abbrev=40"))

    def write_patch(self, path: str) -> None:
        self._diff("--binary", "--full-index", f"--output={path}")

    def _diff(self, *arguments: str) -> bytes:
        return must_git(
            [
                *(f"--git-dir={self._git_dir}", f"--work-tree={self._scene.top}"),
                *("diff", "--cached", "--no-renames", "--no-ext-diff", "--no-textconv"),
                *("--no-color", "--ignore-submodules=none", *arguments),
                *(self._scene.baseline.tree, "--"),
            ],
            doing="git cannot tell what was changed",
            env={**self._env, **alternates_variable(f"{self._scene.baseline.git_dir}/objects")},
            timeout=_PATIENCE_S,
        )


# ---- what there is


def _clear_the_way(scene: Scene, differences: Differences) -> list[str]:
    """Remove what git would wait for without end; tells of it, and of what git cannot keep."""
    top = os.fsencode(scene.top)
    special = sorted(special_files(top, differences.changed + differences.extra))
    notes = []
    if special:
        notes.append(
            f"pipes, sockets and devices are not in the patch: {shown(special[0])}"
            + (f" and {len(special) - 1} more" if len(special) > 1 else "")
        )
    for path in special:
        if path.rpartition(b"/")[2] in _READ_BY_GIT:
            os.unlink(os.path.join(top, path))  # noqa: PTH108, PTH118 - bytes
            notes.append(f"{shown(path)} was removed: git would wait for that pipe without end")
    unreadable = differences.unreadable
    if unreadable:
        notes.append(f"a folder that cannot be read is not in the patch: {shown(unreadable[0])}")
    return notes


def _untracked(scene: Scene, differences: Differences) -> tuple[list[bytes], list[str]]:
    """New files that git does not ignore."""
    if not differences.extra:
        return [], []
    stdout = must_git(
        [
            *(f"--git-dir={scene.baseline.git_dir}", f"--work-tree={scene.top}"),
            *("ls-files", "-z", "--others", "--exclude-standard"),
        ],
        doing="git cannot tell what was added",
        env={"GIT_INDEX_FILE": scene.baseline.index},
        timeout=_PATIENCE_S,
    )
    paths = [path for path in stdout.split(b"\0") if path and not _is_known(scene.stock, path)]
    repositories = [path for path in paths if path.endswith(b"/")]
    notes = []
    if repositories:
        notes.append(
            f"a repository within is not in the patch: {shown(repositories[0])}"
            + (f" and {len(repositories) - 1} more" if len(repositories) > 1 else "")
        )
    return [path for path in paths if not path.endswith(b"/")], notes


def _select(scene: Scene, differences: Differences, untracked: list[bytes]) -> _Selection:
    """Decide what is looked into: no file that is too large, nor too many, nor too much in all."""
    top = os.fsencode(scene.top)
    selection = _Selection()
    tracked = [path for path in differences.changed if _is_tracked(scene.layout, path)]
    missing = [path for path in differences.missing if _is_tracked(scene.layout, path)]
    candidates = [(path, "deleted") for path in missing]
    candidates += [(path, "changed") for path in tracked]
    candidates += [(path, "added") for path in untracked if not _is_tracked(scene.layout, path)]
    left_out: dict[str, int] = {}
    bytes_left = LARGEST_PATCH_BYTES
    for count, (path, status) in enumerate(sorted(candidates)):
        now, size, reason = _looked_at(os.path.join(top, path), status)  # noqa: PTH118 - bytes
        if path in scene.baseline.not_hashed:
            reason = "larger than 10 MB"
        elif reason is None and count >= MOST_FILES:
            reason = f"beyond the first {MOST_FILES:,} files"
        elif reason is None and size > bytes_left:
            reason = f"more than {LARGEST_PATCH_BYTES // 1_000_000} MB in all"
        if reason is not None:
            left_out[reason] = left_out.get(reason, 0) + 1
            selection.listed.append(_not_looked_into(path, now))
        elif now == "deleted":
            selection.removed.append(path)
        else:
            bytes_left -= size
            selection.written.append(path)
    selection.notes += [
        f"files that are listed and not in the patch: {count:,} ({reason})"
        for reason, count in left_out.items()
    ]
    return selection


def _looked_at(path: bytes, status: str) -> tuple[str, int, str | None]:
    """What became of it at last, its size, and why it cannot be looked into if it cannot."""
    try:
        found = os.lstat(path)
    except OSError:
        return "deleted", 0, None
    if stat.S_ISLNK(found.st_mode):
        return status, found.st_size, None
    if not stat.S_ISREG(found.st_mode):
        # A folder, a pipe or the like where a file was: as a file, it is gone.
        return "deleted", 0, None
    if found.st_size > LARGEST_HASHED_BYTES:
        return status, found.st_size, "larger than 10 MB"
    if not os.access(path, os.R_OK):
        return status, found.st_size, "not readable"
    return status, found.st_size, None


def _is_tracked(layout: Layout, path: bytes) -> bool:
    folder, _, name = path.rpartition(b"/")
    return name in layout.get(folder, ())


def _is_known(stock: Stock, path: bytes) -> bool:
    folder, _, name = path.rpartition(b"/")
    return name in stock.files.get(folder, ())


# ---- what is told


def _read_counts(stdout: bytes) -> list[FileChange]:
    """Raw records, `:modes hashes status` and a path each; then counts with a path each."""
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


def _not_looked_into(path: bytes, status: str) -> FileChange:
    return FileChange(path=shown(path), status=status, lines_added=None, lines_deleted=None)


def _change(in_patch: list[FileChange], listed: list[FileChange]) -> Change:
    files = sorted(in_patch + listed, key=lambda file: file.path)
    statuses = [file.status for file in files]
    return Change(
        files_added=statuses.count("added"),
        files_changed=statuses.count("changed"),
        files_deleted=statuses.count("deleted"),
        binary_files=sum(file.binary for file in files),
        lines_added=sum(file.lines_added or 0 for file in files),
        lines_deleted=sum(file.lines_deleted or 0 for file in files),
        files=tuple(files[:MOST_LISTED]),
    )


def _cut(patch: str) -> list[str]:
    """A patch that is too large ends with the last file that is whole."""
    size = Path(patch).stat().st_size
    if size <= LARGEST_PATCH_BYTES:
        return []
    with Path(patch).open("r+b") as file:
        head = file.read(LARGEST_PATCH_BYTES)
        end = head.rfind(b"\ndiff --git ") + 1
        file.truncate(end or LARGEST_PATCH_BYTES)
    return [f"the patch was cut: it had {size / 1e6:,.0f} MB"]


def shown(path: bytes) -> str:
    """A path as text that any store and screen can take."""
    return path.decode(errors="backslashreplace")
