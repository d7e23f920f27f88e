"""Lists and hashes the contents of any folder, in a repository or not.

A `.git` at any depth is left out: it is history, not contents.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.git.run_git import GitError

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderContents:
    """All paths are relative and sorted, parents before children."""

    folders: tuple[bytes, ...]
    files: tuple[bytes, ...]
    """Includes links, which are not followed."""


def folder_contents(folder: str | Path) -> FolderContents:
    """List a folder's contents. Raises GitError if something cannot be copied."""
    top = os.fsencode(folder)
    folders: list[bytes] = []
    files: list[bytes] = []
    pending = [b""]
    while pending:
        within = pending.pop()
        for name, mode in _scan(top, within):
            path = within + b"/" + name if within else name
            if name == b".git":
                continue
            if stat.S_ISDIR(mode):
                folders.append(path)
                pending.append(path)
            elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                files.append(path)
            else:
                raise GitError(
                    f"{_shown(top, path)} is not a regular file, folder or link: cannot be copied",
                    hint="remove that pipe, socket or device from the template",
                )
    return FolderContents(folders=tuple(sorted(folders)), files=tuple(sorted(files)))


def folder_tree(folder: str | Path) -> str:
    """A hash of everything that a copy of the folder would have: names, kinds, permissions,
    contents."""
    top = os.fsencode(folder)
    contents = folder_contents(folder)
    whole = hashlib.sha256()
    for path in (*contents.folders, *contents.files):
        try:
            kind, content = _described(os.path.join(top, path))  # noqa: PTH118 - bytes
        except OSError as error:
            raise _unreadable(top, path, error) from error
        whole.update(b"%d %s %d %s\n" % (len(path), path, kind, content))
    return whole.hexdigest()


def contents_digest(path: str) -> str:
    """A hash of a file's contents, or of a folder's. Raises GitError."""
    if os.path.isdir(path):  # noqa: PTH112 - text
        return folder_tree(path)
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - text
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise GitError(f"{path} cannot be read: {error.strerror}") from error


def _scan(top: bytes, within: bytes) -> list[tuple[bytes, int]]:
    try:
        with os.scandir(os.path.join(top, within)) as entries:  # noqa: PTH118 - bytes
            return [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in entries]
    except OSError as error:
        raise _unreadable(top, within, error) from error


def _described(path: bytes) -> tuple[int, bytes]:
    mode = os.lstat(path).st_mode
    if stat.S_ISDIR(mode):
        return mode, b""
    if stat.S_ISLNK(mode):
        return stat.S_IFLNK, os.readlink(path)  # noqa: PTH115 - bytes
    content = hashlib.sha256()
    with open(path, "rb") as file:  # noqa: PTH123 - bytes
        while chunk := file.read(_CHUNK_BYTES):
            content.update(chunk)
    return mode, content.digest()


def _unreadable(top: bytes, path: bytes, error: OSError) -> GitError:
    return GitError(
        f"{_shown(top, path)} cannot be read: {error.strerror}",
        hint="attempts start with a copy of the template, so all of it must be readable",
    )


def _shown(top: bytes, path: bytes) -> str:
    return os.path.join(top, path).decode(errors="backslashreplace")  # noqa: PTH118 - bytes
