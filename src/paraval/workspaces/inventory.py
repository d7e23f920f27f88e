"""Lists what is in a folder, and what changed in it since, by looking at every file.

A file's mark includes the kernel's change time (ctime), which no program can set back. Pipes,
sockets, devices, empty folders and nested repositories, which git ignores, are seen too.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from dataclasses import field
from typing import NamedTuple

from paraval.dataclass import dataclass

_FILE_CLOCK = 5 if sys.platform == "linux" else None
"""CLOCK_REALTIME_COARSE, by which Linux dates files: it advances every 1 to 10 ms."""
_TICK_NS = 10_000_000
"""How long such a clock may stand still, if it cannot be read."""
_MOST_TICKS = 100
_MOST_SEEN = 500_000
"""Maximum number of unknown folder entries to list; beyond it the list is incomplete."""
_GIT = b".git"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderMode(NamedTuple):
    """A folder's own attributes, without its contents."""

    mode: int
    uid: int
    gid: int


@dataclass(slots=True)
class Inventory:
    """Everything in a folder at one moment. Paths are relative; b'' is the folder itself."""

    identity: tuple[int, int] = (0, 0)
    files: dict[bytes, dict[bytes, int]] = field(default_factory=dict)
    """By folder, then by name: the mark of everything that is not a folder."""
    manners: dict[bytes, FolderMode] = field(default_factory=dict)
    """Marks of every folder."""
    newest_ns: int = 0
    """When the last of them was changed."""


@dataclass(slots=True)
class InventoryDifferences:
    """How a folder differs from its inventory."""

    is_lost: bool = False
    """True: the folder itself was deleted or replaced; nothing else is reported then."""
    changed: list[bytes] = field(default_factory=list)
    """Files that exist and differ, or are no longer files."""
    missing: list[bytes] = field(default_factory=list)
    missing_folders: list[bytes] = field(default_factory=list)
    """Parents before their contents."""
    extra: list[bytes] = field(default_factory=list)
    """New entries; for a new folder, only the folder."""
    remoded: list[bytes] = field(default_factory=list)
    """Folders whose permissions or owner changed."""
    unreadable: list[bytes] = field(default_factory=list)
    """Folders that could not be read."""

    def __bool__(self) -> bool:
        return self.is_lost or any(
            (
                self.changed,
                self.missing,
                self.missing_folders,
                self.extra,
                self.remoded,
                self.unreadable,
            )
        )


def take_stock(top: bytes, *, leaving_out: frozenset[bytes] = frozenset()) -> Inventory:
    """List the folder's contents, except these names at its top. Raises OSError."""
    whole = os.lstat(top)
    stock = Inventory(identity=(whole.st_dev, whole.st_ino), manners={b"": _manner(whole)})
    pending = [b""]
    while pending:
        pending += take_stock_of(top, pending.pop(), stock, leaving_out=leaving_out)
    return stock


def take_stock_of(
    top: bytes, folder: bytes, stock: Inventory, *, leaving_out: frozenset[bytes]
) -> list[bytes]:
    """Record the contents of one folder; returns its subfolders. Raises OSError."""
    names = stock.files[folder] = {}
    inner = []
    with os.scandir(_under(top, folder)) as entries:
        for entry in entries:
            if not folder and entry.name in leaving_out:
                continue
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                path = within(folder, entry.name)
                stock.manners[path] = _manner(found)
                inner.append(path)
            else:
                names[entry.name] = _mark(found)
                stock.newest_ns = max(stock.newest_ns, found.st_ctime_ns)
    return inner


def mark_of(path: str) -> int | None:
    """The mark of one file of any kind; None if none is visible."""
    try:
        return _mark(os.lstat(path))
    except OSError:
        return None


def mark_again(top: bytes, stock: Inventory, paths: list[bytes]) -> None:
    """Update the marks of files that were put back. Raises OSError."""
    for path in paths:
        folder, _, name = path.rpartition(b"/")
        found = os.lstat(_under(top, path))
        stock.files[folder][name] = _mark(found)
        stock.newest_ns = max(stock.newest_ns, found.st_ctime_ns)


def outwait_the_tick(stock: Inventory) -> None:
    """Return once no change can get the same time as the last one of these files."""
    for _ in range(_MOST_TICKS):
        now_ns = time.clock_gettime_ns(_FILE_CLOCK) if _FILE_CLOCK else time.time_ns() - _TICK_NS
        if now_ns > stock.newest_ns:
            return
        time.sleep(0.0005)


def compare(
    top: bytes, stock: Inventory, *, leaving_out: frozenset[bytes] = frozenset()
) -> InventoryDifferences:
    """How the folder differs from its inventory. Changes nothing, and never raises."""
    manner = _manner_if_same(top, stock)
    if manner is None:
        return InventoryDifferences(is_lost=True)
    differences = InventoryDifferences(remoded=[b""] if manner != stock.manners[b""] else [])
    visited = {b""}
    pending = [b""]
    while pending:
        folder = pending.pop()
        try:
            inner = _compare_folder(top, folder, stock, differences, leaving_out)
        except OSError:
            differences.unreadable.append(folder)
            continue
        visited.update(inner)
        pending += inner
    if len(visited) != len(stock.files):
        gone = sorted(stock.files.keys() - visited)
        differences.missing_folders = _outside_of(differences.unreadable, gone)
        for folder in differences.missing_folders:
            differences.missing += [within(folder, name) for name in stock.files[folder]]
    return differences


def look_again(
    top: bytes, stock: Inventory, found: InventoryDifferences, *, leaving_out: frozenset[bytes]
) -> InventoryDifferences:
    """Check again the folders in which something was found; the others were unchanged."""
    paths = found.changed + found.missing + found.extra + found.missing_folders
    folders = {folder_of(path) for path in paths}
    folders.update(folder for folder in found.missing_folders if folder in stock.files)
    differences = InventoryDifferences()
    for folder in folders & stock.files.keys():
        try:
            _compare_folder(top, folder, stock, differences, leaving_out)
        except OSError:
            differences.unreadable.append(folder)
    return differences


def _manner_if_same(top: bytes, stock: Inventory) -> FolderMode | None:
    """The folder's attributes; None if it is no longer that folder."""
    try:
        found = os.lstat(top)
    except OSError:
        return None
    is_same = stat.S_ISDIR(found.st_mode) and (found.st_dev, found.st_ino) == stock.identity
    return _manner(found) if is_same else None


@dataclass(slots=True)
class Below:
    """Everything at and below some paths."""

    files: list[bytes] = field(default_factory=list)
    """Including links."""
    special: list[bytes] = field(default_factory=list)
    """Pipes, sockets and devices."""
    repositories: list[bytes] = field(default_factory=list)
    """Folders with a `.git`, which is not read."""
    unreadable: list[bytes] = field(default_factory=list)
    is_cut: bool = False
    """True: there is more than was listed."""


def look_below(top: bytes, paths: list[bytes]) -> Below:
    """Changes nothing, and never raises."""
    below = Below()
    pending = list(paths)
    seen = 0
    while pending and not below.is_cut:
        path = pending.pop()
        seen += 1
        below.is_cut = seen >= _MOST_SEEN
        if path.rpartition(b"/")[2] == _GIT:
            below.repositories.append(folder_of(path))
            continue
        try:
            mode = os.lstat(_under(top, path)).st_mode
            if stat.S_ISDIR(mode):
                pending += [within(path, name) for name in os.listdir(_under(top, path))]  # noqa: PTH208 - bytes
            elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                below.files.append(path)
            else:
                below.special.append(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            below.unreadable.append(path)
    return below


def _outside_of(folders: list[bytes], paths: list[bytes]) -> list[bytes]:
    """Those of these paths that are in none of the folders, whose contents are unknown."""
    if not folders:
        return paths
    if b"" in folders:
        return []
    within_them = tuple(folder + b"/" for folder in folders)
    return [path for path in paths if not path.startswith(within_them)]


def folder_of(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


def within(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name


def _compare_folder(
    top: bytes,
    folder: bytes,
    stock: Inventory,
    differences: InventoryDifferences,
    leaving_out: frozenset[bytes],
) -> list[bytes]:
    """Record the differences in one folder; returns the subfolders to check."""
    marks = stock.files[folder]
    inner: list[bytes] = []
    seen = 0
    whole = _under(top, folder)
    # Relative to the folder, which is quicker than with the entries of a scan.
    opened = os.open(whole, _FOLDER)
    try:
        names = os.listdir(whole)  # noqa: PTH208 - bytes, which it does not return for `opened`
        for name in names:
            mark = marks.get(name)
            if mark is not None:
                seen += 1
                if _mark(os.lstat(name, dir_fd=opened)) != mark:
                    differences.changed.append(within(folder, name))
                continue
            path = within(folder, name)
            manner = stock.manners.get(path)
            if not folder and name in leaving_out:
                continue
            found = None if manner is None else os.lstat(name, dir_fd=opened)
            if found is None or not stat.S_ISDIR(found.st_mode):
                differences.extra.append(path)
                continue
            if _manner(found) != manner:
                differences.remoded.append(path)
            inner.append(path)
    finally:
        os.close(opened)
    if seen != len(marks):
        there = set(names)
        differences.missing += [within(folder, name) for name in marks if name not in there]
    return inner


def _mark(found: os.stat_result) -> int:
    # Any change of contents, permissions or names changes the ctime, which no one can set.
    return hash((found.st_ctime_ns, found.st_ino, found.st_size))


def _manner(found: os.stat_result) -> FolderMode:
    return FolderMode(found.st_mode, found.st_uid, found.st_gid)


def _under(top: bytes, path: bytes) -> bytes:
    return top + b"/" + path if path else top
