"""A temporary repository in which one proposal becomes a tree.

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
from paraval.git.run_git import failure, must_git, run_git
from paraval.processes.quick import QuickResult
from paraval.racing.candidates.patch import (
    LARGEST_FILE_BYTES,
    InvalidProposalError,
    PatchMode,
    names_in,
)
from paraval.scratch import scratch_folder

_PLAIN, _PROGRAM = 0o100644, 0o100755
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
    object_format: str
    to_read: dict[str, str]
    to_write: dict[str, str]
    """Like `to_read`, but with lent copies instead of the user's objects."""
    to_lend: dict[str, str]
    lent: str

    def entries(self) -> dict[bytes, TreeEntry]:
        """The baseline's entries by path."""
        listed = tree_entries(self.git_dir, self.base, self.to_read)
        return {entry.path: entry for entry in listed}

    def apply(self, modes: Sequence[PatchMode], entries: dict[bytes, TreeEntry]) -> None:
        """Apply the first mode that git accepts. Raises InvalidProposalError with git's message
        for the mode that matches the most existing files."""
        names = {name for mode in modes for name in names_in(mode)}
        self._lend(entries, names & entries.keys())
        words, most = "", -1
        for mode in modes:
            ended = self._apply(mode, self.to_write)
            if not ended.is_well and self._apply(mode, self.to_read, "--check").is_well:
                # It names files in a way that we did not parse.
                self._lend(entries, entries.keys())
                ended = self._apply(mode, self.to_write)
            if ended.is_well:
                return
            there = len(names_in(mode) & entries.keys())
            if there > most:
                words, most = _words(ended), there
        raise InvalidProposalError(words)

    def put(self, contents: Mapping[bytes, bytes]) -> None:
        """Put files into the index; existing ones keep their permissions."""
        entries = self.entries()
        modes = {path: entries[path].mode if path in entries else _PLAIN for path in contents}
        self._put([(modes[path], content, path) for path, content in contents.items()])

    def put_folder(self, folder: str) -> None:
        """Put a folder's files into the index. Raises InvalidProposalError, GitError, OSError."""
        files, entries = folder_contents(folder).files, self.entries()
        if not files:
            raise InvalidProposalError(f"there are no files in {folder}")
        found = []
        for path in files:
            whole = os.path.join(os.fsencode(folder), path)  # noqa: PTH118 - bytes
            status = os.lstat(whole)
            if stat.S_ISLNK(status.st_mode):
                found.append((LINK, os.readlink(whole), path))  # noqa: PTH115 - bytes
                continue
            if status.st_size > LARGEST_FILE_BYTES:
                name = path.decode(errors="backslashreplace")
                limit = f"{LARGEST_FILE_BYTES // 1_000_000} MB"
                raise InvalidProposalError(f"{name} is larger than {limit}")
            was = entries.get(path)
            mode = _PROGRAM if status.st_mode & stat.S_IXUSR else _PLAIN
            with open(whole, "rb") as file:  # noqa: PTH123 - bytes
                content = file.read(LARGEST_FILE_BYTES)
            found.append((was.mode if was and was.mode in FILES else mode, content, path))
        self._put(found)

    def _put(self, files: Iterable[tuple[int, bytes, bytes]]) -> None:
        """Mode, content and path of each. Raises InvalidProposalError with git's message."""
        lines = []
        for mode, content, path in files:
            blob = write_blob(self.objects, content, self.object_format)
            lines.append(b"%o %s\t%s\0" % (mode, blob.encode(), path))
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

    def _apply(self, mode: PatchMode, env: dict[str, str], *more: str) -> QuickResult:
        return self._run(
            *("apply", "--cached", "--whitespace=nowarn", f"-p{mode.strip}", *more),
            *([] if mode.folder is None else [f"--directory={mode.folder}"]),
            stdin=mode.text,
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
def open_staging(repository: Repository, base: str, objects: Path) -> Iterator[StagingRepo]:
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
        staging = StagingRepo(
            git_dir=git_dir,
            folder=folder,
            base=base,
            objects=objects,
            object_format=repository.object_format,
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
            env=staging.to_read,
        )
        yield staging


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
