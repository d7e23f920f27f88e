"""Text that candidates wrote, made short enough to keep, and the same wherever it was written."""

from __future__ import annotations

import os
from collections.abc import Mapping

LONGEST_MESSAGE = 4000
LONGEST_VALUE = 1000


def cut(text: str, most: int = LONGEST_MESSAGE) -> str:
    """The text, its middle left out where it has more characters than this."""
    if len(text) <= most:
        return text
    mark = f" [... {len(text) - most:,} characters ...] "
    half = max(1, (most - len(mark)) // 2)
    return f"{text[:half]}{mark}{text[-half:]}"


class Places:
    """Folders that are others for every run of the same tests, and what is told in their place."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """`names`: an absolute folder -> what stands for it."""
        paths = {path: name for path, name in names.items() if path not in ("", "/")}
        # By what a link leads to, too: programs tell of a folder by either name.
        paths |= {os.path.realpath(path): name for path, name in paths.items()}
        longest_first = sorted(paths.items(), key=lambda item: len(item[0]), reverse=True)
        self._text = tuple(longest_first)
        self._bytes = tuple((os.fsencode(path), name.encode()) for path, name in longest_first)

    def hidden_in(self, text: str) -> str:
        for path, name in self._text:
            text = text.replace(path, name)
        return text

    def hidden_in_bytes(self, data: bytes) -> bytes:
        for path, name in self._bytes:
            data = data.replace(path, name)
        return data


NOWHERE = Places({})
FOLDER = "{folder}"
"""What stands for the folder of an attempt."""
WORKTREE = "{worktree}"
"""What stands for the folder that a candidate is tested in."""
