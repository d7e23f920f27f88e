"""Git objects: differences between two trees, and writing files as blobs."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.git.run_git import must_git

# File contents as git objects: written by us into our own folder, read by git.

_FOUND = 3
"""git's line about an existing object: hash, kind and size."""


def write_blob(objects: Path, content: bytes, object_format: str = "sha1") -> str:
    """Write a blob; returns its hash. Raises OSError."""
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
    """Sizes by hash; what is missing or not a blob is left out. Raises GitError."""
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
    """Contents by hash, of existing blobs. Raises GitError."""
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


ABSENT = 0
LINK = 0o120000
FILES = (0o100644, 0o100755)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeChange:
    """A file, link or submodule that differs between two trees."""

    path: bytes
    old_mode: int
    """ABSENT: not in the old tree."""
    new_mode: int
    old_hash: str
    new_hash: str


def tree_changes(
    git_dir: str, old: str, new: str, env: Mapping[str, str] | None = None
) -> list[TreeChange]:
    """Differences by path; a rename is a deletion and an addition. Raises GitError."""
    stdout = must_git(
        [f"--git-dir={git_dir}", "diff-tree", "-r", "-z", "--no-renames", "--raw", old, new],
        doing=f"cannot compare tree {new} with {old}",
        env=env,
    )
    parts = iter(stdout.split(b"\0")[:-1])
    changes = []
    for about in parts:
        old_mode, new_mode, old_hash, new_hash, _ = about[1:].split(b" ")
        changes.append(
            TreeChange(
                path=next(parts),
                old_mode=int(old_mode, 8),
                new_mode=int(new_mode, 8),
                old_hash=old_hash.decode(),
                new_hash=new_hash.decode(),
            )
        )
    return changes


def line_counts(
    git_dir: str, old: str, new: str, env: Mapping[str, str] | None = None
) -> dict[bytes, tuple[int, int] | None]:
    """Lines added and deleted, by path; None for a binary file. Raises GitError."""
    stdout = must_git(
        [
            *(f"--git-dir={git_dir}", "diff-tree", "-r", "-z", "--no-renames", "--numstat"),
            *("--no-ext-diff", "--no-textconv", old, new),
        ],
        doing=f"cannot compare tree {new} with {old}",
        env=env,
    )
    found: dict[bytes, tuple[int, int] | None] = {}
    for record in stdout.split(b"\0")[:-1]:
        added, deleted, path = record.split(b"\t", 2)
        found[path] = None if added == b"-" else (int(added), int(deleted))
    return found


def write_patch(
    git_dir: str, trees: tuple[str, str], path: str, env: Mapping[str, str] | None = None
) -> None:
    """A patch from one tree to the other, in `git apply` format. Raises GitError."""
    must_git(
        [
            *(f"--git-dir={git_dir}", "diff-tree", "-r", "-p", "--binary", "--full-index"),
            *("--no-renames", "--no-ext-diff", "--no-textconv", "--no-color"),
            *("--src-prefix=a/", "--dst-prefix=b/", f"--output={path}", *trees),
        ],
        doing="cannot write a patch",
        env=env,
    )
