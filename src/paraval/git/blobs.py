"""Contents of files as git objects: written by us into a folder of our own, read by git.

Written here without git: it would give a new time to an object that a lender has too, and take
line ends, names and filters into account.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from paraval.git.running import must_git

_FOUND = 3
"""What is told of an object that is there: its hash, kind and size."""


def write_blob(objects: Path, content: bytes, object_format: str = "sha1") -> str:
    """Its hash, as git has it. Raises OSError."""
    whole = b"blob %d\0" % len(content) + content
    name = hashlib.new(object_format, whole, usedforsecurity=False).hexdigest()
    place = objects / name[:2] / name[2:]
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, prefix="tmp_obj_", delete=False) as file:
            file.write(zlib.compress(whole, 1))
        os.chmod(file.name, 0o444)  # noqa: PTH101 - as git leaves them
        os.replace(file.name, place)  # noqa: PTH105 - text
    return name


def read_blobs(
    git_dir: str, hashes: Iterable[str], env: Mapping[str, str] | None = None
) -> dict[str, bytes]:
    """By hash; what is no blob, or not there, is left out. Raises GitError."""
    wanted = sorted(set(hashes))
    if not wanted:
        return {}
    shown = must_git(
        [f"--git-dir={git_dir}", "cat-file", "--batch", "--buffer"],
        doing="cannot read files of a tree",
        env=env,
        stdin=b"".join(name.encode() + b"\n" for name in wanted),
    )
    found, at = {}, 0
    while at < len(shown):
        end = shown.index(b"\n", at)
        about = shown[at:end].split(b" ")
        at = end + 1
        if len(about) == _FOUND:
            size = int(about[2])
            if about[1] == b"blob":
                found[about[0].decode()] = shown[at : at + size]
            at += size + 1
    return found


def sizes_of(
    git_dir: str, hashes: Iterable[str], env: Mapping[str, str] | None = None
) -> dict[str, int]:
    """By hash, of the blobs that are there. Raises GitError."""
    wanted = sorted(set(hashes))
    if not wanted:
        return {}
    shown = must_git(
        [f"--git-dir={git_dir}", "cat-file", "--batch-check"],
        doing="cannot read files of a tree",
        env=env,
        stdin=b"".join(name.encode() + b"\n" for name in wanted),
    )
    fields = (line.split(b" ") for line in shown.splitlines())
    return {part[0].decode(): int(part[2]) for part in fields if part[1:2] == [b"blob"]}
