"""Where one proposal becomes a tree: a repository of our own, for as long as that takes.

The user's objects are borrowed to read. What is written goes into the race's own folder, by a git
that sees nothing of the user's then: it would give a new time to an object that is there already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paraval.git.borrowing import Lender, alternates_variable, lend_copies, write_repository
from paraval.git.repositories import Repository, TreeEntry, tree_entries
from paraval.git.running import failure, must_git, run_git
from paraval.git.trees import FILES, LINK
from paraval.processes.quick import QuickEnd
from paraval.racing.staging_files import Entry
from paraval.racing.staging_patch import InvalidProposalError, Manner, names_in
from paraval.scratch import scratch_folder

_ATTRIBUTES = "* !diff -filter\n"
"""No file is binary because it is said to be, and no filter is ever run."""
_STRICT = ("-c", "core.protectNTFS=true", "-c", "core.protectHFS=true")
"""A name that any system could take for `.git` is none of a candidate's."""
_NO_PATCH = ("No valid patches in input", "unrecognized input")
"""Newer and older words of git for a text without any."""
_MOST_LINES = 6
_LONGEST = 1_000
_BORROWED = (*FILES, LINK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """An index that begins with the baseline's tree."""

    git_dir: str
    folder: str
    base: str
    objects: Path
    to_read: dict[str, str]
    to_write: dict[str, str]
    """As `to_read`, but with copies of what was lent in the place of the user's objects."""
    to_lend: dict[str, str]
    lent: str

    def entries(self) -> dict[bytes, TreeEntry]:
        """What is in the baseline, by path."""
        listed = tree_entries(self.git_dir, self.base, self.to_read)
        return {entry.path: entry for entry in listed}

    def apply(self, manners: Sequence[Manner], entries: dict[bytes, TreeEntry]) -> None:
        """The first manner that git takes. Raises InvalidProposalError with git's own words of
        the one that names the most files that there are."""
        names = {name for manner in manners for name in names_in(manner)}
        self._lend(entries, names & entries.keys())
        words, most = "", -1
        for manner in manners:
            ended = self._apply(manner, self.to_write)
            if not ended.is_well and self._apply(manner, self.to_read, "--check").is_well:
                # It names files in a way that we did not see.
                self._lend(entries, entries.keys())
                ended = self._apply(manner, self.to_write)
            if ended.is_well:
                return
            there = len(names_in(manner) & entries.keys())
            if there > most:
                words, most = _words(ended), there
        raise InvalidProposalError(words)

    def put(self, entries: Sequence[Entry]) -> None:
        """Files into the index. Raises InvalidProposalError with git's own words."""
        ordered = sorted(entries, key=lambda entry: (entry.mode != 0, entry.path))
        lines = [b"%o %s\t%s\0" % (one.mode, one.hash.encode(), one.path) for one in ordered]
        ended = self._run("update-index", "-z", "--index-info", stdin=b"".join(lines))
        # It passes over a name that cannot be, and goes on.
        if not ended.is_well or "Ignoring path" in ended.stderr:
            raise InvalidProposalError(_words(ended).replace("Ignoring", "invalid"))

    def check_names(self, tree: str) -> None:
        """That a tree can be checked out. Raises InvalidProposalError with git's own words."""
        ended = self._run("read-tree", tree, env=self.to_read)
        if not ended.is_well:
            raise InvalidProposalError(_words(ended))

    def write_tree(self) -> str:
        """The hash of what is in the index now. Raises GitError."""
        ended = self._run("write-tree", "--missing-ok")
        if not ended.is_well:
            raise failure("cannot write a candidate's tree", ended)
        return ended.stdout.decode().strip()

    def _lend(self, entries: dict[bytes, TreeEntry], paths: Iterable[bytes]) -> None:
        found = {entries[path].hash for path in paths if entries[path].mode in _BORROWED}
        lend_copies([f"--git-dir={self.git_dir}"], sorted(found), self.lent, self.to_lend)

    def _apply(self, manner: Manner, env: dict[str, str], *more: str) -> QuickEnd:
        return self._run(
            *("apply", "--cached", "--whitespace=nowarn", f"-p{manner.strip}", *more),
            *([] if manner.folder is None else [f"--directory={manner.folder}"]),
            stdin=manner.text,
            env=env,
        )

    def _run(
        self, *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> QuickEnd:
        return run_git(
            [*_STRICT, f"--git-dir={self.git_dir}", *arguments],
            env=self.to_write if env is None else env,
            cwd=self.folder,
            stdin=stdin,
        )


@contextmanager
def open_desk(repository: Repository, base: str, objects: Path) -> Iterator[Desk]:
    """For one proposal. Raises GitError, StoreError or OSError."""
    # What a killed engine leaves of it is cleared like all its scratch.
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
        desk = Desk(
            git_dir=git_dir,
            folder=folder,
            base=base,
            objects=objects,
            to_read={**own, **alternates_variable(repository.objects)},
            to_write={**own, **alternates_variable(lent)},
            to_lend={
                **own,
                # Where it puts what is not finished, too.
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


def _words(ended: QuickEnd) -> str:
    """What git says, without what is the same in every line."""
    if any(sign in ended.stderr for sign in _NO_PATCH):
        return "it holds no patch"
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    plain = [line.removeprefix("error:").removeprefix("fatal:").strip() for line in lines]
    shown = plain[:_MOST_LINES]
    if len(plain) > _MOST_LINES:
        shown.append(f"and {len(plain) - _MOST_LINES} lines more")
    return "; ".join(shown)[:_LONGEST] or f"git ended with exit code {ended.exit_code}"
