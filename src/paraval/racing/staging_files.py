"""Files that were proposed instead of a patch, as entries of an index: checked, then written."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paraval.git.blobs import write_blob
from paraval.git.folders import folder_contents
from paraval.git.repositories import TreeEntry
from paraval.git.running import GitError
from paraval.git.trees import FILES, LINK
from paraval.racing.staging_patch import LARGEST_FILE_BYTES, InvalidProposalError

_PLAIN = 0o100644
_PROGRAM = 0o100755


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is to be at a path."""

    path: bytes
    mode: int
    """0: nothing."""
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What files are proposed against, and where their contents go."""

    entries: Mapping[bytes, TreeEntry]
    objects: Path
    object_format: str

    def nothing(self, path: bytes) -> Entry:
        return Entry(path=path, mode=0, hash="0" * (64 if self.object_format == "sha256" else 40))

    def written(self, path: bytes, mode: int, content: bytes) -> Entry:
        if len(content) > LARGEST_FILE_BYTES:
            raise InvalidProposalError(
                f"{_shown(path)} has more than {LARGEST_FILE_BYTES // 1_000_000} MB"
            )
        blob = write_blob(self.objects, content, self.object_format)
        return Entry(path=path, mode=mode, hash=blob)


def entries_of_files(files: Mapping[str, str | None], ground: Ground) -> list[Entry]:
    """Texts by path; permissions stay as they are. Raises InvalidProposalError, OSError."""
    texts = {_path(name): _bytes(name, text) for name, text in files.items()}
    gone = {path for path, content in texts.items() if content is None}
    found = []
    for path, content in texts.items():
        was = ground.entries.get(path)
        if content is None:
            if was is None:
                raise InvalidProposalError(f"{_shown(path)} cannot be deleted: it is not there")
            found.append(ground.nothing(path))
            continue
        if was is not None and was.mode not in FILES:
            raise InvalidProposalError(f"{_shown(path)} is no file but a link or a submodule")
        found.append(ground.written(path, _PLAIN if was is None else was.mode, content))
    _check(found, ground, gone)
    return found


def entries_of_folder(folder: str, ground: Ground) -> list[Entry]:
    """All that a folder holds; what is there already keeps its permissions. Raises
    InvalidProposalError, OSError."""
    try:
        contents = folder_contents(folder)
    except GitError as error:
        raise InvalidProposalError(error.message) from error
    if not contents.files:
        raise InvalidProposalError(f"there are no files in {folder}")
    found = [_entry_in(folder, path, ground) for path in contents.files]
    _check(found, ground, set())
    return found


def _entry_in(folder: str, path: bytes, ground: Ground) -> Entry:
    whole = os.path.join(os.fsencode(folder), path)  # noqa: PTH118 - bytes
    status = os.lstat(whole)
    if stat.S_ISLNK(status.st_mode):
        return ground.written(path, LINK, os.readlink(whole))  # noqa: PTH115 - bytes
    if status.st_size > LARGEST_FILE_BYTES:
        raise InvalidProposalError(
            f"{_shown(path)} has more than {LARGEST_FILE_BYTES // 1_000_000} MB"
        )
    was = ground.entries.get(path)
    mode = _PROGRAM if status.st_mode & stat.S_IXUSR else _PLAIN
    if was is not None and was.mode in FILES:
        mode = was.mode
    with open(whole, "rb") as file:  # noqa: PTH123 - bytes
        return ground.written(path, mode, file.read(LARGEST_FILE_BYTES + 1))


def _check(found: list[Entry], ground: Ground, gone: set[bytes]) -> None:
    """Nothing goes through a link, and no file takes a folder's place unseen."""
    folders = {b"/".join(parts) for path in ground.entries for parts in _above(path)}
    written = {entry.path for entry in found if entry.mode}
    for path in written:
        if path in folders and not _is_emptied(path, ground, gone):
            raise InvalidProposalError(f"{_shown(path)} is a folder in the repository")
        for parts in _above(path):
            above = b"/".join(parts)
            was = ground.entries.get(above)
            if above in written:
                raise InvalidProposalError(f"{_shown(above)} is to be a file and a folder")
            if was is not None and above not in gone:
                kind = "a symbolic link" if was.mode == LINK else "no folder"
                raise InvalidProposalError(f"{_shown(path)}: {_shown(above)} is {kind}")


def _is_emptied(folder: bytes, ground: Ground, gone: set[bytes]) -> bool:
    return all(path in gone for path in ground.entries if path.startswith(folder + b"/"))


def _above(path: bytes) -> list[list[bytes]]:
    parts = path.split(b"/")
    return [parts[:count] for count in range(1, len(parts))]


def _path(name: str) -> bytes:
    try:
        path = os.fsencode(name)
    except UnicodeEncodeError as error:
        raise InvalidProposalError(f"{name!r} is no name of a file") from error
    parts = path.split(b"/")
    if b"\0" in path or not all(parts) or b"." in parts or b".." in parts:
        raise InvalidProposalError(
            f"{name[:200]!r} is no path in the repository: it must be relative, without '..'"
        )
    return path


def _bytes(name: str, text: str | None) -> bytes | None:
    try:
        return None if text is None else text.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidProposalError(f"the text of {name[:200]!r} is no UTF-8") from error


def _shown(path: bytes) -> str:
    return path.decode(errors="backslashreplace")[:200]
