"""What a node id says: the test's file, its code, and the test without the model that it ran with.

By the text alone, since a process that only hears of tests (xdist's controller) has nothing else.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from pathlib import Path

MODEL = "model"
"""The axis that a suite of tests may have, and the fixture that it comes from."""

_XDIST_GROUP = re.compile(r"(?P<test>::[^\[@:]+(?:\[.*\])?)@[^\]]*$")
"""What `--dist loadgroup` puts behind the id of a test."""


def file_of(node_id: str) -> str:
    """Relative to the rootdir, with slashes."""
    return node_id.partition("::")[0]


def without_xdist_group(node_id: str) -> str:
    # Asked for every report, and most have no such sign at all.
    if "@" not in node_id:
        return node_id
    return _XDIST_GROUP.sub(r"\g<test>", node_id)


def model_in(node_id: str, models: Collection[str]) -> str | None:
    """The model that a test was made for, by its parameters: the first of them, as far as a text
    tells, since others may have the name of a model, too. Of those that fit, the longest."""
    parameters = _parameters(node_id)
    if parameters is None:
        return None
    within = f"-{parameters}-"
    fitting = [name for name in models if f"-{name}-" in within]
    return max(fitting, key=lambda name: (within.startswith(f"-{name}-"), len(name)), default=None)


def without_model(node_id: str, model: str) -> str:
    """`test_y[haiku-3]` of haiku is `test_y[3]`, and `test_y[haiku]` is `test_y`.

    The model's parameter is the first, unless a test orders it otherwise.
    """
    parameters = _parameters(node_id)
    if parameters is None:
        return node_id
    test = node_id.removesuffix(f"[{parameters}]")
    before, found, after = f"-{parameters}-".partition(f"-{model}-")
    if not found:
        return node_id
    left = "-".join(part for part in (before.removeprefix("-"), after.removesuffix("-")) if part)
    return f"{test}[{left}]" if left else test


def _parameters(node_id: str) -> str | None:
    """What stands in the brackets; ids may hold brackets themselves."""
    start = node_id.find("[", node_id.find("::"))
    if start < 0 or not node_id.endswith("]"):
        return None
    return node_id[start + 1 : -1]


# ---- which code a test is


DIGEST_BYTES = 16


class SourceDigests:
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
