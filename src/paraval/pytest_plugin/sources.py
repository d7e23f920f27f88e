"""Which code a test is: a digest of its file and of the conftests around it, each read once.

What the test tests is not in it: of that, the state of the whole repository tells (`code_state`).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from paraval.pytest_plugin.node_ids import file_of

DIGEST_BYTES = 16


class Sources:
    """The files of tests under one rootdir."""

    def __init__(self, rootdir: Path) -> None:
        self._rootdir = rootdir
        self._contents: dict[Path, bytes] = {}
        self._by_file: dict[str, str] = {}

    def digest(self, node_id: str) -> str:
        """Of the test's file and its conftests as they are now; the same for all in one file."""
        file = file_of(node_id)
        if file not in self._by_file:
            self._by_file[file] = self._digest_of(self._rootdir / file)
        return self._by_file[file]

    def _digest_of(self, path: Path) -> str:
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        digest.update(self._content_of(path))
        for folder in path.parents:
            digest.update(self._content_of(folder / "conftest.py"))
            if folder == self._rootdir:
                break
        return digest.hexdigest()

    def _content_of(self, path: Path) -> bytes:
        """A digest of a file; of one that cannot be read, of nothing."""
        if path not in self._contents:
            try:
                content = path.read_bytes()
            except (OSError, ValueError):  # A name that no file can have.
                content = b""
            self._contents[path] = hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
        return self._contents[path]
