"""A temporary repository in which one proposal becomes a tree, with files as index entries.

The user's objects are borrowed for reading. Writes go to the race's own folder, by a git process
that does not see the user's objects: it would update the time of existing ones.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.git.alternates import Lender, alternates_variable, lend_copies, write_repository
from paraval.git.folders import folder_contents
from paraval.git.objects import FILES, LINK, write_blob
from paraval.git.repositories import Repository, TreeEntry, tree_entries
from paraval.git.run_git import GitError, failure, must_git, run_git
from paraval.processes.quick import QuickResult
from paraval.racing.candidates.patch import (
    LARGEST_FILE_BYTES,
    InvalidProposalError,
    PatchMode,
    names_in,
)
from paraval.scratch import scratch_folder

# Files proposed instead of a patch, as index entries: checked, then written.

_PLAIN = 0o100644
_PROGRAM = 0o100755


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedFile:
    """The proposed content of a path."""

    path: bytes
    mode: int
    """0 deletes it."""
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalBase:
    """The tree that files are proposed for, and where their contents go."""

    entries: Mapping[bytes, TreeEntry]
    objects: Path
    object_format: str

    def nothing(self, path: bytes) -> ProposedFile:
        return ProposedFile(
            path=path, mode=0, hash="0" * (64 if self.object_format == "sha256" else 40)
        )

    def written(self, path: bytes, mode: int, content: bytes) -> ProposedFile:
        if len(content) > LARGEST_FILE_BYTES:
            raise InvalidProposalError(
                f"{_shown(path)} is larger than {LARGEST_FILE_BYTES // 1_000_000} MB"
            )
        blob = write_blob(self.objects, content, self.object_format)
        return ProposedFile(path=path, mode=mode, hash=blob)


def entries_of_files(files: Mapping[str, str | None], ground: ProposalBase) -> list[ProposedFile]:
    """Index entries for texts by path, permissions kept. Raises InvalidProposalError, OSError."""
    texts = {_path(name): _bytes(name, text) for name, text in files.items()}
    gone = {path for path, content in texts.items() if content is None}
    found = []
    for path, content in texts.items():
        was = ground.entries.get(path)
        if content is None:
            if was is None:
                raise InvalidProposalError(f"{_shown(path)} cannot be deleted: it does not exist")
            found.append(ground.nothing(path))
            continue
        if was is not None and was.mode not in FILES:
            raise InvalidProposalError(f"{_shown(path)} is a link or a submodule, not a file")
        found.append(ground.written(path, _PLAIN if was is None else was.mode, content))
    _check(found, ground, gone)
    return found


def entries_of_folder(folder: str, ground: ProposalBase) -> list[ProposedFile]:
    """Index entries for a folder's files; existing ones keep their permissions. Raises
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


def _entry_in(folder: str, path: bytes, ground: ProposalBase) -> ProposedFile:
    whole = os.path.join(os.fsencode(folder), path)  # noqa: PTH118 - bytes
    status = os.lstat(whole)
    if stat.S_ISLNK(status.st_mode):
        return ground.written(path, LINK, os.readlink(whole))  # noqa: PTH115 - bytes
    if status.st_size > LARGEST_FILE_BYTES:
        raise InvalidProposalError(
            f"{_shown(path)} is larger than {LARGEST_FILE_BYTES // 1_000_000} MB"
        )
    was = ground.entries.get(path)
    mode = _PROGRAM if status.st_mode & stat.S_IXUSR else _PLAIN
    if was is not None and was.mode in FILES:
        mode = was.mode
    with open(whole, "rb") as file:  # noqa: PTH123 - bytes
        return ground.written(path, mode, file.read(LARGEST_FILE_BYTES + 1))


def _check(found: list[ProposedFile], ground: ProposalBase, gone: set[bytes]) -> None:
    """Refuse paths through links, and files that would replace folders."""
    folders = {b"/".join(parts) for path in ground.entries for parts in _above(path)}
    written = {entry.path for entry in found if entry.mode}
    for path in written:
        if path in folders and not _is_emptied(path, ground, gone):
            raise InvalidProposalError(f"{_shown(path)} is a folder in the repository")
        for parts in _above(path):
            above = b"/".join(parts)
            was = ground.entries.get(above)
            if above in written:
                raise InvalidProposalError(f"{_shown(above)} would be both a file and a folder")
            if was is not None and above not in gone:
                kind = "a symbolic link" if was.mode == LINK else "not a folder"
                raise InvalidProposalError(f"{_shown(path)}: {_shown(above)} is {kind}")


def _is_emptied(folder: bytes, ground: ProposalBase, gone: set[bytes]) -> bool:
    return all(path in gone for path in ground.entries if path.startswith(folder + b"/"))


def _above(path: bytes) -> list[list[bytes]]:
    parts = path.split(b"/")
    return [parts[:count] for count in range(1, len(parts))]


def _path(name: str) -> bytes:
    try:
        path = os.fsencode(name)
    except UnicodeEncodeError as error:
        raise InvalidProposalError(f"{name!r} is not a valid file name") from error
    parts = path.split(b"/")
    if b"\0" in path or not all(parts) or b"." in parts or b".." in parts:
        raise InvalidProposalError(
            f"{name[:200]!r} is not a valid path: it must be relative, without '..'"
        )
    return path


def _bytes(name: str, text: str | None) -> bytes | None:
    try:
        return None if text is None else text.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidProposalError(f"the text of {name[:200]!r} is not UTF-8") from error


def _shown(path: bytes) -> str:
    return path.decode(errors="backslashreplace")[:200]


_ATTRIBUTES = "* !diff -filter\n"
"""Ignore binary attributes, and never run filters."""
_STRICT = ("-c", "core.protectNTFS=true", "-c", "core.protectHFS=true")
"""Refuse names that any system could take for `.git`."""
_NO_PATCH = ("No valid patches in input", "unrecognized input")
"""Newer and older messages of git for a text without a patch."""
_MOST_LINES = 6
_LONGEST = 1_000
_BORROWED = (*FILES, LINK)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingRepo:
    """An index that starts with the baseline's tree."""

    git_dir: str
    folder: str
    base: str
    objects: Path
    to_read: dict[str, str]
    to_write: dict[str, str]
    """Like `to_read`, but with lent copies instead of the user's objects."""
    to_lend: dict[str, str]
    lent: str

    def entries(self) -> dict[bytes, TreeEntry]:
        """The baseline's entries by path."""
        listed = tree_entries(self.git_dir, self.base, self.to_read)
        return {entry.path: entry for entry in listed}

    def apply(self, manners: Sequence[PatchMode], entries: dict[bytes, TreeEntry]) -> None:
        """Apply the first mode that git accepts. Raises InvalidProposalError with git's message
        for the mode that matches the most existing files."""
        names = {name for manner in manners for name in names_in(manner)}
        self._lend(entries, names & entries.keys())
        words, most = "", -1
        for manner in manners:
            ended = self._apply(manner, self.to_write)
            if not ended.is_well and self._apply(manner, self.to_read, "--check").is_well:
                # It names files in a way that we did not parse.
                self._lend(entries, entries.keys())
                ended = self._apply(manner, self.to_write)
            if ended.is_well:
                return
            there = len(names_in(manner) & entries.keys())
            if there > most:
                words, most = _words(ended), there
        raise InvalidProposalError(words)

    def put(self, entries: Sequence[ProposedFile]) -> None:
        """Put files into the index. Raises InvalidProposalError with git's message."""
        ordered = sorted(entries, key=lambda entry: (entry.mode != 0, entry.path))
        lines = [b"%o %s\t%s\0" % (one.mode, one.hash.encode(), one.path) for one in ordered]
        ended = self._run("update-index", "-z", "--index-info", stdin=b"".join(lines))
        # git only warns about an invalid name.
        if not ended.is_well or "Ignoring path" in ended.stderr:
            raise InvalidProposalError(_words(ended).replace("Ignoring", "invalid"))

    def check_names(self, tree: str) -> None:
        """Check that a tree can be checked out. Raises InvalidProposalError with git's message."""
        ended = self._run("read-tree", tree, env=self.to_read)
        if not ended.is_well:
            raise InvalidProposalError(_words(ended))

    def write_tree(self) -> str:
        """Write the index as a tree and return its hash. Raises GitError."""
        ended = self._run("write-tree", "--missing-ok")
        if not ended.is_well:
            raise failure("cannot write a candidate's tree", ended)
        return ended.stdout.decode().strip()

    def _lend(self, entries: dict[bytes, TreeEntry], paths: Iterable[bytes]) -> None:
        found = {entries[path].hash for path in paths if entries[path].mode in _BORROWED}
        lend_copies([f"--git-dir={self.git_dir}"], sorted(found), self.lent, self.to_lend)

    def _apply(self, manner: PatchMode, env: dict[str, str], *more: str) -> QuickResult:
        return self._run(
            *("apply", "--cached", "--whitespace=nowarn", f"-p{manner.strip}", *more),
            *([] if manner.folder is None else [f"--directory={manner.folder}"]),
            stdin=manner.text,
            env=env,
        )

    def _run(
        self, *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> QuickResult:
        return run_git(
            [*_STRICT, f"--git-dir={self.git_dir}", *arguments],
            env=self.to_write if env is None else env,
            cwd=self.folder,
            stdin=stdin,
        )


@contextmanager
def open_desk(repository: Repository, base: str, objects: Path) -> Iterator[StagingRepo]:
    """A staging repository for one proposal. Raises GitError, StoreError or OSError."""
    # If the engine is killed, it is cleaned up like all scratch folders.
    with scratch_folder() as scratch:
        folder = str(scratch.folder)
        git_dir, lent = f"{folder}/stage.git", f"{folder}/lent"
        lender = Lender(objects=(), object_format=repository.object_format)
        write_repository(git_dir, lender, head="0" * len(base), attributes=_ATTRIBUTES)
        Path(lent).mkdir()
        own = {
            "GIT_INDEX_FILE": f"{folder}/index",
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_WORK_TREE": folder,
        }
        desk = StagingRepo(
            git_dir=git_dir,
            folder=folder,
            base=base,
            objects=objects,
            to_read={**own, **alternates_variable(repository.objects)},
            to_write={**own, **alternates_variable(lent)},
            to_lend={
                **own,
                # git puts unfinished objects here too.
                "GIT_OBJECT_DIRECTORY": lent,
                **alternates_variable(repository.objects, str(objects)),
            },
            lent=lent,
        )
        must_git(
            [f"--git-dir={git_dir}", "read-tree", base],
            doing="cannot read the baseline's tree",
            env=desk.to_read,
        )
        yield desk


def _words(ended: QuickResult) -> str:
    """git's message, without the prefix of each line."""
    if any(sign in ended.stderr for sign in _NO_PATCH):
        return "it contains no patch"
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    plain = [line.removeprefix("error:").removeprefix("fatal:").strip() for line in lines]
    shown = plain[:_MOST_LINES]
    if len(plain) > _MOST_LINES:
        shown.append(f"and {len(plain) - _MOST_LINES} more lines")
    return "; ".join(shown)[:_LONGEST] or f"git ended with exit code {ended.exit_code}"
