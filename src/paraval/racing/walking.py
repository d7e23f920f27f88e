"""All files below a folder, by a walk that opens nothing and ends, whatever it finds."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

MOST_ENTRIES = 200_000


def files_below(
    top: str, *, not_entered: Collection[str] = ()
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Paths relative to it; links are files. Folders of the names `not_entered` are passed by."""
    pending, seen = [""], 0
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(f"{top}/{folder}") as entries:
                listed = list(entries)
        except OSError:
            # It is gone, or closed to us: what it holds is nobody's to read then.
            continue
        for entry in listed:
            seen += 1
            if seen > MOST_ENTRIES:
                return
            if not entry.is_dir(follow_symlinks=False):
                yield f"{folder}{entry.name}", entry
            elif entry.name not in not_entered:
                pending.append(f"{folder}{entry.name}/")
