"""One slot of a pool: created, verified clean before each lease, inspected for changes.

Everything here blocks and belongs in a thread. `pool` decides who gets a slot.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from paraval.errors import ParavalError
from paraval.git.patch_paths import paths_in_patch
from paraval.records import SETUP_REMOVED, SETUP_UNDONE, Change, HiddenFiles
from paraval.scratch import MOUNTS, remove_tree, unmount_below
from paraval.text.words import some
from paraval.workspaces.changed_files import (
    GITIGNORE,
    WorkspaceState,
    is_tool_cache,
    not_ignored,
    shown,
)
from paraval.workspaces.hidden_files import (
    CACHE,
    check_unchanged,
    copies,
    copy_file,
    ignored_flag,
)
from paraval.workspaces.inventory import (
    Inventory,
    InventoryDifferences,
    compare,
    folder_of,
    look_again,
    look_below,
    mark_again,
    outwait_the_tick,
    take_stock,
    take_stock_of,
    within,
)
from paraval.workspaces.own_repository import OwnRepository, make_own_repository, tampering
from paraval.workspaces.patches import apply_patch, keep_change
from paraval.workspaces.workspace import (
    KeptWorkspace,
    LaidTree,
    Layout,
    PlacedFiles,
    SlotPlace,
    SlotSource,
    WorkspaceBase,
    WorkspaceError,
    in_words,
)

# What `setup` created that git does not ignore, by the current rules, including its own.


def not_ignored_leavings(
    top: str, baseline: WorkspaceBase, found: InventoryDifferences
) -> list[bytes]:
    """The new files and repositories to remove. Raises GitError or OSError."""
    whole = os.fsencode(top)
    rules = replace(baseline, rules=top)
    _remove_pipes(whole, found.changed + found.extra)
    # A folder that is ignored as a whole is not read, nor a `.git` in a tracked one.
    new = [path for path in not_ignored(rules, found.extra) if _name(path) != b".git"]
    below = look_below(whole, new)
    _remove_pipes(whole, below.special)
    repositories = not_ignored(rules, below.repositories)
    inside = tuple(path + b"/" for path in repositories)
    files = [path for path in below.files + below.special if not path.startswith(inside)]
    return repositories + not_ignored(rules, files)


def _remove_pipes(top: bytes, paths: list[bytes]) -> None:
    """Rule files that git would block on."""
    for path in paths:
        whole = within(top, path)
        if _name(path) == GITIGNORE and stat.S_ISFIFO(os.lstat(whole).st_mode):
            os.unlink(whole)  # noqa: PTH108 - bytes


def _name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


# What an attempt has mounted in its workspace: only root can, and no other attempt may find it.

_MOST_LAYERS = 100


def unmounted(room: Path) -> tuple[str, ...]:
    """Unmount it; returns a note if there was something. Raises WorkspaceError if it stays."""
    if not _is_mentioned(room):
        return ()
    left = unmount_below(room)
    for _ in range(_MOST_LAYERS):
        # A mount over another mount hides it.
        before, left = left, unmount_below(room) if left else left
        if left == before:
            break
    if left:
        raise WorkspaceError(
            f"something is mounted in the workspace and cannot be unmounted: {left[0]}"
        )
    return ("something was mounted in the workspace; it was unmounted and is not in the patch",)


def _is_mentioned(room: Path) -> bool:
    try:
        table = MOUNTS.read_bytes()
    except OSError:
        return False
    place = os.fsencode(room.parent.resolve() / room.name)
    return place + b"/" in table or place + b" " in table


# The inventory of a folder in which some files were replaced: only touched parts are read.


def restock(
    top: bytes, before: Inventory, touched: frozenset[bytes], *, leaving_out: frozenset[bytes]
) -> Inventory:
    """Update after these paths were written or removed, and folders created and removed for them.
    Raises OSError."""
    after = replace(before, files=dict(before.files), manners=dict(before.manners))
    _forget_below(after, touched)
    for folder in sorted(_above(touched)):
        try:
            take_stock_of(top, folder, after, leaving_out=leaving_out)
        except (FileNotFoundError, NotADirectoryError):
            _forget_below(after, frozenset((folder,)))
    return after


def unexpected(before: Inventory, after: Inventory, touched: frozenset[bytes]) -> list[bytes]:
    """Differences between two inventories where nothing at, above or below the path was touched."""
    above = _above(touched) | touched
    below = tuple(path + b"/" for path in touched)
    return [
        path
        for path in _differing(before, after)
        if path not in above and not path.startswith(below)
    ]


def _above(paths: frozenset[bytes]) -> set[bytes]:
    """The parent folders of these, up to the top."""
    folders = {b""}
    for path in paths:
        folder = folder_of(path)
        while folder not in folders:
            folders.add(folder)
            folder = folder_of(folder)
    return folders


def _forget_below(stock: Inventory, paths: frozenset[bytes]) -> None:
    """Folders that were at these paths, and everything in them."""
    for path in paths & stock.manners.keys():
        below = [one for one in stock.manners if one == path or one.startswith(path + b"/")]
        for folder in below:
            del stock.manners[folder]
            stock.files.pop(folder, None)


def _differing(before: Inventory, after: Inventory) -> Iterator[bytes]:
    for folder in before.manners.keys() | after.manners.keys():
        old, new = before.files.get(folder), after.files.get(folder)
        if old is new:
            if new is None:
                yield folder
            continue
        if old is None or new is None:
            yield folder
        marks = (old or {}).items() ^ (new or {}).items()
        yield from {within(folder, name) for name, _ in marks}


_OWN = frozenset({b".git"})
LOST = "the workspace's folder was moved, deleted or replaced"
"""What is reported as unknown for a workspace that no longer exists."""


class _LaidHere(NamedTuple):
    laid: LaidTree
    stock: Inventory
    """With it."""


class Slot:
    """A folder that is filled from a source, and what is known about it."""

    def __init__(self, place: SlotPlace, source: SlotSource) -> None:
        self.place = place
        self._source = source
        self._top = os.fsencode(place.top)
        self._leaving_out = _OWN if source.beginning is not None else frozenset()
        self._stock = Inventory()
        self._own: OwnRepository | None = None
        self._thrown_away = 0
        """Folders ever created."""
        self._incidents_before = 0
        """Changes to the engine's own files before this lease began."""
        self.is_set_up = False
        """True: the results of `setup` are here, unchanged."""
        self._laid: _LaidHere | None = None

    def make(self) -> None:
        """Fill it. Raises GitError or OSError, and leaves what exists to `discard`."""
        Path(self.place.top).mkdir(parents=True)
        self._source.fill(self.place)
        self._stock = take_stock(self._top, leaving_out=self._leaving_out)
        _check_layout(self._source.layout, self._stock)
        self._hand_over()

    def clean(self) -> None:
        """Restore its initial state. Raises if it can no longer be trusted.

        If an attempt changed what `setup` created, all of that is removed, and `is_set_up` reset.
        """
        # An applied tree is a change like any other: it differs from what the slot was filled with.
        self._forget_laid()
        unmounted(Path(self.place.top).parent)
        self._remove_neighbors()
        differences = self._compare()
        if differences.remoded or differences.unreadable:
            self._mend_modes(differences)
            differences = self._compare()
        if differences and not (differences.is_lost or differences.unreadable):
            self._mend(differences)
            differences = look_again(
                self._top, self._stock, differences, leaving_out=self._leaving_out
            )
        if differences:
            raise WorkspaceError(f"the workspace {self.place.top} cannot be cleaned")
        self._hand_over()

    def lay(self, tree: str) -> None:
        """Replace what it started from by another tree, in a clean slot. Raises if that cannot be
        verified. What `setup` created belongs to the original tree and is removed."""
        self._forget_laid()
        if self.is_set_up:
            self._remove_what_setup_left()
        laid = self._source.lay(self.place, tree)
        stock = restock(self._top, self._stock, laid.touched, leaving_out=self._leaving_out)
        _check_layout(laid.layout, stock)
        others = unexpected(self._stock, stock, laid.touched)
        if others:
            raise WorkspaceError(f"something else changed meanwhile: {_some(others)}")
        self._source.trusted.hold()
        outwait_the_tick(stock)
        self._laid = _LaidHere(laid, stock)

    def _forget_laid(self) -> None:
        self._laid = None
        self._source.forget_laid(self.place)

    def _hand_over(self) -> None:
        """The last step: its own repository, as new. Raises OSError."""
        self._source.trusted.hold()
        self._incidents_before = len(self._source.trusted.incidents)
        beginning = self._source.beginning
        if beginning is not None:
            if self._own is not None and self._own.is_untouched():
                self._own.take_index(self.place.index)
            else:
                self._own = make_own_repository(self.place.top, beginning, self.place.index)
        # A change that an attempt makes right now must not get the same time as this one.
        outwait_the_tick(self._known)

    def settle_setup(self) -> tuple[str, ...]:
        """After `setup`: keep ignored files, restore everything else. Returns what was undone."""
        differences = self._compare()
        self._mend_modes(differences)
        baseline = self._scene().baseline
        untracked = not_ignored_leavings(self.place.top, baseline, differences)
        for path in untracked:
            self._remove(path)
        tracked = self._tracked(differences.changed + differences.missing)
        self._put_back(tracked, differences.missing_folders)
        stock = take_stock(self._top, leaving_out=self._leaving_out)
        _check_layout(self._layout, stock)
        if self._laid is None:
            self._stock = stock
            self.is_set_up = True
        else:
            self._laid = self._laid._replace(stock=stock)
        self._hand_over()
        notes = []
        if tracked:
            notes.append(f"{SETUP_UNDONE}{_some(tracked)}")
        if untracked:
            notes.append(f"{SETUP_REMOVED}{_some(untracked)}")
        return tuple(notes)

    def keep(self, folder: str) -> KeptWorkspace:
        """What changed since the lease began. Never raises."""
        kept = self._keep(folder)
        try:
            # Again: an attempt beside it may have been active during the first look.
            self._source.trusted.hold()
        except (ParavalError, OSError) as error:
            unknown = kept.change.unknown or in_words(error)
            kept = replace(kept, change=replace(kept.change, unknown=unknown))
        incidents = self._source.trusted.incidents[self._incidents_before :]
        told = (*kept.change.tampering, *dict.fromkeys(incidents))
        return replace(kept, change=replace(kept.change, tampering=told))

    def _keep(self, folder: str) -> KeptWorkspace:
        told: tuple[str, ...] = ()
        notes: tuple[str, ...] = ()
        try:
            notes = unmounted(Path(self.place.top).parent)
            self._source.trusted.hold()
            differences = self._compare()
            if differences.is_lost:
                # Including its .git, whose state is unknown too: it may be intact, elsewhere.
                return KeptWorkspace(change=Change(unknown=LOST), notes=notes)
            told = tampering(self._own) if self._own is not None else ()
            if not differences:
                return KeptWorkspace(change=Change(tampering=told), notes=notes)
            kept = keep_change(self._scene(), differences, folder)
        except (ParavalError, OSError, ValueError) as error:
            return KeptWorkspace(
                change=Change(tampering=told, unknown=in_words(error)), notes=notes
            )
        change = replace(kept.change, tampering=told)
        return replace(kept, change=change, notes=(*notes, *kept.notes))

    def _scene(self) -> WorkspaceState:
        if self._laid is None:
            return WorkspaceState(
                top=self.place.top,
                layout=self._source.layout,
                stock=self._stock,
                baseline=self._source.baseline(self.place),
            )
        laid, stock = self._laid
        self._source.hold_laid(self.place, laid)
        return WorkspaceState(
            top=self.place.top, layout=laid.layout, stock=stock, baseline=laid.baseline
        )

    # ---- hidden files

    def put_hidden(self, hidden: Sequence[HiddenFiles], start: str) -> PlacedFiles:
        """Put them into it, over what the attempt left. Raises GitError, OSError or WorkspaceError.
        Cleaning removes them like the attempt's own changes."""
        found = os.lstat(self._top)
        if (found.st_dev, found.st_ino) != self._known.identity:
            raise WorkspaceError(LOST)
        check_unchanged(hidden)
        ignored = self._ignored_changes()
        odd: list[str] = []
        put: list[bytes] = []
        for files in hidden:
            if files.is_patch:
                paths = paths_in_patch(files.source)
                odd += [one for path in paths for one in self._odd_at(path)]
                self._restore(paths)
                git_dir = self._scene().baseline.git_dir
                apply_patch(self.place.top, files.source, git_dir=git_dir)
                put += paths
                continue
            for source, path in copies(files, start):
                odd += self._odd_at(path)
                self._make_way(path)
                copy_file(source, self._under(path))
                put.append(path)
        flags = (*dict.fromkeys(odd), *ignored_flag(map(shown, set(ignored).difference(put))))
        return PlacedFiles(paths=tuple(map(shown, dict.fromkeys(put))), flags=flags)

    def _ignored_changes(self) -> list[bytes]:
        """What the attempt changed that git ignores. Compiled modules are removed: Python could
        load them instead of their source. Raises GitError or OSError."""
        found = self._compare()
        below = look_below(self._top, found.changed + found.extra)
        tracked = set(self._tracked(found.changed + found.missing))
        of_setup = set(found.changed + found.missing) - tracked
        paths = {*below.files, *below.special, *of_setup} - tracked
        compiled = {path for path in paths if CACHE in path.split(b"/")[:-1]}
        for path in {self._compiled_at(path) for path in compiled}:
            # One that stays, as files of a container's root may, is told.
            with suppress(OSError):
                self._remove(path)
        compiled = {path for path in compiled if not os.path.lexists(self._under(path))}
        new = [path for path in paths - compiled - of_setup if not is_tool_cache(path)]
        return sorted({*new, *(of_setup - compiled)} - {*not_ignored(self._scene().baseline, new)})

    def _compiled_at(self, path: bytes) -> bytes:
        """The whole cache that a compiled module is in, or itself if `setup` made the cache."""
        parts = path.split(b"/")
        cache = b"/".join(parts[: parts.index(CACHE) + 1])
        return path if cache in self._known.manners else cache

    def _odd_at(self, path: bytes) -> Iterator[str]:
        """What is no file where a hidden one goes, and no folder where its folders are."""
        parts = path.split(b"/")
        for depth in range(1, len(parts) + 1):
            place = b"/".join(parts[:depth])
            try:
                mode = os.lstat(self._under(place)).st_mode
            except OSError:
                return
            if depth == len(parts) and not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
                yield f"{shown(place)} was no longer a file: a hidden file takes its place"
            elif depth < len(parts) and not stat.S_ISDIR(mode):
                if not self._tracked([place]):
                    yield f"{shown(place)} was no longer a folder: hidden files take its place"
                return

    def _restore(self, paths: list[bytes]) -> None:
        """To what attempts start from."""
        for path in paths:
            self._make_way(path)
        self._put_back(self._tracked(paths), [])
        # What is written next must differ from it.
        outwait_the_tick(self._known)

    def _make_way(self, path: bytes) -> None:
        """Remove what is at the path, and what is in the way of its folders."""
        folders = path.split(b"/")[:-1]
        for depth in range(len(folders) + 1):
            whole = self._under(b"/".join(folders[:depth]))
            if os.path.islink(whole) or not os.path.isdir(whole):  # noqa: PTH112, PTH114 - bytes
                self._remove(whole)
                os.mkdir(whole)  # noqa: PTH102 - bytes
            mode = stat.S_IMODE(os.lstat(whole).st_mode)
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                os.chmod(whole, mode | stat.S_IRWXU)  # noqa: PTH101 - bytes
        self._remove(path)
        cache = within(folder_of(path), CACHE)
        if cache not in self._known.manners:
            self._remove(cache)

    def discard(self) -> str | None:
        """Remove it; returns what is left if that is not possible."""
        with suppress(OSError):
            os.unlink(self.place.index)  # noqa: PTH108 - text, and quick
        self._source.trusted.forget(self.place.index)
        self._forget_laid()
        self.empty_trash()
        return remove_tree(Path(self.place.top).parent)

    def empty_trash(self) -> None:
        """Remove what was moved aside; what stays is retried at the end."""
        try:
            names = os.listdir(self.place.trash)  # noqa: PTH208 - names alone
        except OSError:
            return
        for name in names:
            remove_tree(Path(self.place.trash, name))

    # ---- cleaning

    def _remove_neighbors(self) -> None:
        """What an attempt put beside its workspace, where the next one would find it."""
        room, name = os.path.split(self._top)
        for neighbor in os.listdir(room):  # noqa: PTH208 - bytes
            if neighbor != name:
                self._remove(os.path.join(room, neighbor))  # noqa: PTH118 - bytes

    def _mend(self, differences: InventoryDifferences) -> None:
        lost = differences.changed + differences.missing
        tracked = self._tracked(lost)
        folders = [path for path in differences.missing_folders if path not in self._layout]
        for path in differences.extra:
            self._remove(path)
        if len(tracked) != len(lost) or folders:
            self._remove_what_setup_left()
        for path in differences.changed:
            self._remove(path)
        self._put_back(tracked, differences.missing_folders)

    def _remove_what_setup_left(self) -> None:
        """All of it: half of it could be worse than nothing."""
        self.is_set_up = False
        layout = self._source.layout
        for folder in sorted(self._stock.files.keys() - layout.keys()):
            self._remove(folder)
        for folder, names in layout.items():
            for name in self._stock.files[folder].keys() - names:
                self._remove(within(folder, name))
        self._stock.files = {
            folder: {name: self._stock.files[folder][name] for name in names}
            for folder, names in layout.items()
        }
        self._stock.manners = {path: self._stock.manners[path] for path in layout}

    def _put_back(self, paths: list[bytes], folders: list[bytes]) -> None:
        for folder in folders:
            if folder in self._layout:
                os.makedirs(self._under(folder), exist_ok=True)  # noqa: PTH103 - bytes
                os.chmod(self._under(folder), stat.S_IMODE(self._known.manners[folder].mode))  # noqa: PTH101
        for path in paths:
            # git compares times in seconds to see whether a file is unchanged; here that is too
            # coarse.
            self._remove(path)
        if not paths:
            return
        if self._laid is None:
            self._source.put_back(self.place, paths)
            mark_again(self._top, self._stock, paths)
        else:
            self._source.put_back_laid(self.place, self._laid.laid, paths)

    def _mend_modes(self, differences: InventoryDifferences) -> None:
        for path in sorted(differences.remoded):
            if path in self._layout:
                manner = self._known.manners[path]
                # The owner first: changing it clears some permission bits.
                os.chown(self._under(path), manner.uid, manner.gid)
                os.chmod(self._under(path), stat.S_IMODE(manner.mode))  # noqa: PTH101 - bytes
            else:
                self._remove_what_setup_left()
                return

    def _remove(self, path: bytes) -> None:
        """Remove it, whatever it is. Raises OSError if it stays."""
        whole = self._under(path)
        try:
            os.unlink(whole)  # noqa: PTH108 - bytes
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            self._remove_folder(os.fsdecode(whole))

    def _remove_folder(self, path: str) -> None:
        """Move it aside first: the next lease need not wait for its contents to be removed."""
        self._thrown_away += 1
        try:
            os.makedirs(self.place.trash, exist_ok=True)  # noqa: PTH103 - text, and quick
            os.rename(path, f"{self.place.trash}/{self._thrown_away}")  # noqa: PTH104
        except OSError:
            left = remove_tree(path)
            if left is not None:
                raise OSError(left) from None

    # ---- looking

    @property
    def _known(self) -> Inventory:
        """What is in it, as far as we put it there."""
        return self._stock if self._laid is None else self._laid.stock

    @property
    def _layout(self) -> Layout:
        """For the tree that is in it."""
        return self._source.layout if self._laid is None else self._laid.laid.layout

    def _compare(self) -> InventoryDifferences:
        return compare(self._top, self._known, leaving_out=self._leaving_out)

    def _tracked(self, paths: list[bytes]) -> list[bytes]:
        layout = self._layout
        return [
            path for path in paths if path.rpartition(b"/")[2] in layout.get(folder_of(path), ())
        ]

    def _under(self, path: bytes) -> bytes:
        return os.path.join(self._top, path)  # noqa: PTH118 - bytes


def _check_layout(layout: Layout, stock: Inventory) -> None:
    for folder, names in layout.items():
        missing = names - stock.files.get(folder, {}).keys()
        if missing or folder not in stock.files:
            path = within(folder, next(iter(missing), b""))
            raise WorkspaceError(
                f"{shown(path)} is missing after the checkout",
                hint="this disk cannot hold names that differ only in case",
            )


def _some(paths: list[bytes]) -> str:
    return some([shown(path) for path in sorted(paths)], 3)
