"""Small files of the kernel's, as far as they are there and make sense.

What cannot be read or understood is None: a container may hide any of them, and a reading that
failed for one number would cost all the others.
"""

from __future__ import annotations

from pathlib import Path


def text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def number_of(path: Path) -> int | None:
    """A file that holds one number; None also for `max`, which is none."""
    return number(text_of(path))


def number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def table_of(path: Path) -> dict[str, int]:
    """`name number` or `name: number kB`, a line each, as they stand."""
    found: dict[str, int] = {}
    for line in (text_of(path) or "").splitlines():
        words = line.split()
        value = number(words[1]) if len(words) > 1 else None
        if value is not None:
            found[words[0].rstrip(":")] = value
    return found
