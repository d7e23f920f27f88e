"""What an agent makes for itself at the top of a repository, taken away before its work is kept."""

from __future__ import annotations

import asyncio
import os
from fnmatch import fnmatch

from paraval.scratch import remove_tree

MOST_FOLDERS_UP = 40


class Litter:
    """Looked for before the agent starts, cleared after it ended: what stood there before stays."""

    def __init__(self, workspace: str | None, names: tuple[str, ...]) -> None:
        """`names`: patterns; without a workspace nothing of it is looked at."""
        self._names = names
        self._top = _top_of(workspace) if workspace is not None and names else None
        self._before = self._found()

    async def clear(self) -> None:
        new = sorted(self._found() - self._before)
        if new:
            await asyncio.to_thread(lambda: [remove_tree(path) for path in new])

    def _found(self) -> frozenset[str]:
        if self._top is None:
            return frozenset()
        try:
            with os.scandir(self._top) as entries:
                return frozenset(
                    entry.path
                    for entry in entries
                    if any(fnmatch(entry.name, name) for name in self._names)
                )
        except OSError:
            return frozenset()


def _top_of(folder: str) -> str | None:
    """The top of the repository that it is in; None: it is in none."""
    for _ in range(MOST_FOLDERS_UP):
        if os.path.lexists(f"{folder}/.git"):
            return folder
        above = os.path.dirname(folder)  # noqa: PTH120 - text, and quick
        if above == folder:
            return None
        folder = above
    return None
