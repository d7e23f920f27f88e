"""Keeps the files that the engine's own git reads as the engine wrote them.

They are in the scratch folder, where an attempt without a sandbox can write. A line in a `config`
there would make git run the attempt's code in the engine's name. So they are checked before each
use, and rewritten if they changed.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.scratch import remove_tree, unmount_below
from paraval.workspaces.inventory import (
    Inventory,
    InventoryDifferences,
    compare,
    mark_of,
    outwait_the_tick,
    take_stock,
)

Write = Callable[[Path], object]
"""Creates a new folder with its contents."""


@dataclass(slots=True)
class _TrustedFile:
    folder: Path
    write: Write
    stock: Inventory


class TrustedPaths:
    """Folders and files that only the engine may change."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        """Guards everything here: slots are prepared and inspected in many threads."""
        self._held: list[_TrustedFile] = []
        self._marks: dict[str, int | None] = {}
        """Marks of single files, by path."""
        self.incidents: list[str] = []
        """All changes found so far, in words."""

    def write(self, folder: Path, write: Write) -> None:
        """Write a folder, and protect it from now on. Raises what `write` raises, and OSError."""
        with self._lock:
            held = _TrustedFile(folder=folder, write=write, stock=Inventory())
            self._write(held)
            self._held.append(held)

    def hold(self) -> None:
        """Restore all folders. Raises if that is not possible."""
        with self._lock:
            for held in self._held:
                differences = compare(os.fsencode(held.folder), held.stock)
                if differences:
                    self._tell(held.folder.name, _what(differences))
                    self._write(held)

    def watch(self, file: str) -> None:
        """Remember a file that the engine just wrote."""
        with self._lock:
            self._marks[file] = mark_of(file)

    def is_as_written(self, file: str) -> bool:
        """Whether a file is unchanged since it was remembered; if not, it is removed and noted."""
        with self._lock:
            if mark_of(file) == self._marks.get(file):
                return True
            if file in self._marks:
                self._tell(os.path.basename(file), "")  # noqa: PTH119 - text, and quick
        _remove(file)
        return False

    def forget(self, file: str) -> None:
        with self._lock:
            self._marks.pop(file, None)

    def _tell(self, name: str, what: str) -> None:
        self.incidents.append(
            f"paraval's own files beside the workspaces were changed while it ran: {name}{what}"
        )

    def _write(self, held: _TrustedFile) -> None:
        """Beside it first, so that git never reads half of it."""
        folder = held.folder
        with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as room:
            fresh, old = Path(room, "fresh"), Path(room, "old")
            held.write(fresh)
            stock = take_stock(os.fsencode(fresh))
            if os.path.lexists(folder):
                unmount_below(folder)
                folder.rename(old)
            fresh.rename(folder)
            remove_tree(old)
        # A change made right now must not get the same time as this one.
        outwait_the_tick(stock)
        held.stock = stock


def _remove(file: str) -> None:
    with suppress(OSError):
        # A pipe too, which must not be opened.
        os.unlink(file)  # noqa: PTH108 - text, and quick
    if os.path.lexists(file) and (left := remove_tree(file)) is not None:
        raise OSError(left)


def _what(differences: InventoryDifferences) -> str:
    paths = sorted(differences.changed + differences.missing + differences.extra)
    if not paths:
        return ""
    others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"/{paths[0].decode(errors='backslashreplace')}{others}"
