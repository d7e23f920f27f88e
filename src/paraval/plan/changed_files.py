"""Which files of a working tree differ from its index: for a message, as far as it is known.

Nothing is read of the files: that could run filters of the user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def changed_files(source: str, *, since: float | None) -> list[str]:
    """Paths of what is changed or new, without what git ignores; where some of them are newer than
    `since` (seconds since the epoch), those alone."""
    paths = [
        *_listed(source, "diff-files", "-z", "--name-only"),
        *_listed(source, "ls-files", "-z", "--others", "--exclude-standard"),
    ]
    if since is None:
        return paths
    return [path for path in paths if _changed_at(Path(source, path)) >= since] or paths


def _listed(source: str, *asked: str) -> Iterator[str]:
    from paraval.git.running import run_git  # noqa: PLC0415 - seldom needed

    for path in run_git(asked, cwd=source).stdout.split(b"\0"):
        if path:
            yield path.decode(errors="backslashreplace")


def _changed_at(path: Path) -> float:
    with suppress(OSError):
        return path.lstat().st_mtime
    return 0.0
