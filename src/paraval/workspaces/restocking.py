"""The stock of a folder in which some files were replaced: by a look at what was touched alone.

All else was seen to be well a moment before, and is the same. That nothing but what was to be
touched differs is part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from paraval.workspaces.stock import Stock, folder_of, take_stock_of, within


def restock(
    top: bytes, before: Stock, touched: frozenset[bytes], *, leaving_out: frozenset[bytes]
) -> Stock:
    """After these paths were written or removed, with folders made and removed for them. Raises
    OSError."""
    after = replace(before, files=dict(before.files), manners=dict(before.manners))
    _forget_below(after, touched)
    for folder in sorted(_above(touched)):
        try:
            take_stock_of(top, folder, after, leaving_out=leaving_out)
        except (FileNotFoundError, NotADirectoryError):
            _forget_below(after, frozenset((folder,)))
    return after


def unexpected(before: Stock, after: Stock, touched: frozenset[bytes]) -> list[bytes]:
    """What differs between two stocks though nothing at it, above it or below it was touched."""
    above = _above(touched) | touched
    below = tuple(path + b"/" for path in touched)
    return [
        path
        for path in _differing(before, after)
        if path not in above and not path.startswith(below)
    ]


def _above(paths: frozenset[bytes]) -> set[bytes]:
    """The folders that these are in, up to the topmost."""
    folders = {b""}
    for path in paths:
        folder = folder_of(path)
        while folder not in folders:
            folders.add(folder)
            folder = folder_of(folder)
    return folders


def _forget_below(stock: Stock, paths: frozenset[bytes]) -> None:
    """Folders that were at these paths, and all in them."""
    for path in paths & stock.manners.keys():
        below = [one for one in stock.manners if one == path or one.startswith(path + b"/")]
        for folder in below:
            del stock.manners[folder]
            stock.files.pop(folder, None)


def _differing(before: Stock, after: Stock) -> Iterator[bytes]:
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
