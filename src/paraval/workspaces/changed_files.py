"""Finds the files that an attempt changed, by the ignore rules from its start, and selects those to
read.

Limits the size of a file, their number and their total. Files beyond the limits are listed, with
unknown contents.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.git.run_git import failure, run_git
from paraval.records import FileChange
from paraval.workspaces.inventory import Below, Inventory, InventoryDifferences, look_below
from paraval.workspaces.workspace import LARGEST_HASHED_BYTES, Layout, WorkspaceBase

# What git ignored when an attempt started: rules that the attempt cannot change.

GITIGNORE = b".gitignore"
_CACHES = frozenset({b".mypy_cache", b".pytest_cache", b".ruff_cache"})
"""Folders that tools create wherever they run, each with its own ignore rule."""
_PATIENCE_S = 120.0
_SOME_IGNORED, _NONE_IGNORED = 0, 1


def write_rules(top: Path, files: Mapping[bytes, bytes]) -> None:
    """Create a working tree of only these `.gitignore` files, by path. Raises OSError."""
    top.mkdir()
    for path, content in files.items():
        place = top / os.fsdecode(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def is_tool_cache(path: bytes) -> bool:
    return not _CACHES.isdisjoint(path.split(b"/")[:-1])


def not_ignored(baseline: WorkspaceBase, paths: list[bytes]) -> list[bytes]:
    """Those of these files that git did not ignore at the start. Raises GitError."""
    asked = [path for path in paths if not is_tool_cache(path)]
    if not asked:
        return []
    ended = run_git(
        [
            *(f"--git-dir={baseline.git_dir}", f"--work-tree={baseline.rules}"),
            *("check-ignore", "--no-index", "-z", "--stdin"),
        ],
        # This command has no option for literal paths: `./` keeps a name from being taken for a
        # pattern.
        env={"GIT_LITERAL_PATHSPECS": "0"},
        stdin=b"".join(b"./" + path + b"\0" for path in asked),
        timeout=_PATIENCE_S,
    )
    if ended.exit_code not in (_SOME_IGNORED, _NONE_IGNORED):
        raise failure("git cannot list ignored files", ended)
    ignored = set(ended.stdout.split(b"\0"))
    return [path for path in asked if b"./" + path not in ignored]


MOST_FILES = 10_000
LARGEST_PATCH_BYTES = 50_000_000
_READ_BY_GIT = (b".gitignore", b".gitattributes", b".gitmodules")
_SNIFFED_BYTES = 8_000
"""Like git: a NUL byte near the start makes a file binary."""
LEFT_OUT = "files listed but not in the patch"
_TOO_LARGE = "larger than 10 MB"
_NOT_READABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceState:
    """A workspace after an attempt, and its state before."""

    top: str
    layout: Layout
    """What it started from."""
    stock: Inventory
    """Including what `setup` created, which is not a change of the attempt's."""
    baseline: WorkspaceBase


@dataclass(slots=True)
class ChangedFiles:
    """Which files go into the patch, and which are only listed."""

    removed: list[bytes] = field(default_factory=list)
    written: list[bytes] = field(default_factory=list)
    new: set[bytes] = field(default_factory=set)
    """Of the written files, those that did not exist before."""
    listed: list[FileChange] = field(default_factory=list)
    """Not read."""
    notes: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Why the list is incomplete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileGlance:
    """What a first look at a file shows."""

    status: str
    size: int = 0
    left_out: str | None = None
    """Why it cannot be read."""


def select(scene: WorkspaceState, differences: InventoryDifferences) -> ChangedFiles:
    """Decide which files to read. Raises GitError or OSError."""
    top = os.fsencode(scene.top)
    selection = ChangedFiles()
    below = look_below(top, differences.changed + differences.extra)
    _clear_the_way(top, below, selection)
    _tell_unseen(differences, below, selection)
    fresh = [
        path
        for path in below.files
        if not (_is_tracked(scene.layout, path) or _is_known(scene.stock, path))
    ]
    candidates = dict.fromkeys(not_ignored(scene.baseline, fresh), "added")
    for paths, status in ((differences.changed, "changed"), (differences.missing, "deleted")):
        candidates |= {path: status for path in paths if _is_tracked(scene.layout, path)}
    _divide(scene, candidates, selection)
    return selection


def is_binary(path: bytes) -> bool | None:
    """From its first bytes; None: unreadable."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return b"\0" in os.read(file, _SNIFFED_BYTES)
    except OSError:
        return None
    finally:
        os.close(file)


def shown(path: bytes) -> str:
    """A path as text that can be stored and displayed anywhere."""
    return path.decode(errors="backslashreplace")


def not_looked_into(path: bytes, status: str, *, binary: bool = False) -> FileChange:
    return FileChange(
        path=shown(path), status=status, lines_added=None, lines_deleted=None, binary=binary
    )


# ---- what cannot be included


def _clear_the_way(top: bytes, below: Below, selection: ChangedFiles) -> None:
    """Remove pipes that git would block on; note them, and what git cannot store."""
    special = sorted(below.special)
    if special:
        selection.notes.append(
            f"pipes, sockets and devices are left out of the patch: {_some(special)}"
        )
    for path in special:
        if path.rpartition(b"/")[2] in _READ_BY_GIT:
            os.unlink(os.path.join(top, path))  # noqa: PTH108, PTH118 - bytes
            selection.notes.append(f"{shown(path)} was removed: git would block on that pipe")
    if below.repositories:
        paths = [path + b"/.git" for path in sorted(below.repositories)]
        selection.notes.append(f"the history of a nested repository is not kept: {_some(paths)}")


def _tell_unseen(differences: InventoryDifferences, below: Below, selection: ChangedFiles) -> None:
    unreadable = sorted({*differences.unreadable, *below.unreadable})
    if unreadable:
        paths = [path or b"the workspace itself" for path in unreadable]
        selection.unknown.append(f"a folder cannot be read: {_some(paths)}")
    if below.is_cut:
        selection.unknown.append("too many new files to list")


def _some(paths: list[bytes]) -> str:
    return shown(paths[0]) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")


# ---- what is read


def _divide(scene: WorkspaceState, candidates: dict[bytes, str], selection: ChangedFiles) -> None:
    left_out: Counter[str] = Counter()
    without_lines: Counter[str] = Counter()
    bytes_left = LARGEST_PATCH_BYTES
    for count, path in enumerate(sorted(candidates)):
        look = _look_at(scene, path, candidates[path])
        reason = look.left_out
        if reason is None and count >= MOST_FILES:
            reason = f"beyond the first {MOST_FILES:,} files"
        elif reason is None and look.size > bytes_left:
            reason = f"more than {LARGEST_PATCH_BYTES // 1_000_000} MB in all"
        if reason is not None:
            left_out[reason] += 1
            binary = count < MOST_FILES and _is_surely_binary(scene, path, look)
            without_lines[reason] += not binary
            selection.listed.append(not_looked_into(path, look.status, binary=binary))
        elif look.status == "deleted":
            selection.removed.append(path)
        else:
            bytes_left -= look.size
            selection.written.append(path)
            if look.status == "added":
                selection.new.add(path)
    selection.notes += [f"{LEFT_OUT}: {number:,} ({reason})" for reason, number in left_out.items()]
    selection.unknown += [
        f"the lines of {number:,} {'file' if number == 1 else 'files'} ({reason})"
        for reason, number in without_lines.items()
        if number
    ]


def _look_at(scene: WorkspaceState, path: bytes, status: str) -> _FileGlance:
    """Its final state, its size, and why it cannot be read, if so."""
    is_large = path in scene.baseline.not_hashed
    if status == "deleted":
        return _FileGlance(status=status, left_out=_TOO_LARGE if is_large else None)
    whole = os.path.join(os.fsencode(scene.top), path)  # noqa: PTH118 - bytes
    try:
        found = os.lstat(whole)
    except (FileNotFoundError, NotADirectoryError):
        return _FileGlance(status="deleted", left_out=_TOO_LARGE if is_large else None)
    except OSError:
        return _FileGlance(status=status, left_out=_NOT_READABLE)
    is_file = stat.S_ISREG(found.st_mode)
    if not (is_file or stat.S_ISLNK(found.st_mode)):
        # A folder, a pipe or the like has replaced the file: as a file, it is deleted.
        return _FileGlance(status="deleted", left_out=_TOO_LARGE if is_large else None)
    left_out = None
    if is_large or (is_file and found.st_size > LARGEST_HASHED_BYTES):
        left_out = _TOO_LARGE
    elif is_file and is_binary(whole) is None:
        left_out = _NOT_READABLE
    return _FileGlance(status=status, size=found.st_size, left_out=left_out)


def _is_surely_binary(scene: WorkspaceState, path: bytes, look: _FileGlance) -> bool:
    was_binary = scene.baseline.not_hashed.get(path, False)
    if look.status == "deleted":
        return was_binary
    return was_binary or is_binary(os.path.join(os.fsencode(scene.top), path)) is True  # noqa: PTH118


def _is_tracked(layout: Layout, path: bytes) -> bool:
    folder, _, name = path.rpartition(b"/")
    return name in layout.get(folder, ())


def _is_known(stock: Inventory, path: bytes) -> bool:
    folder, _, name = path.rpartition(b"/")
    return name in stock.files.get(folder, ())
