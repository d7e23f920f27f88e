"""Watches the user's repository while candidates' programs run: who was running when it changed.

No sandbox, no proof: what is found is a flag for all that ran then, and no verdict.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paraval.errors import ParavalError
from paraval.git.alternates import Lender, lender_of, write_repository
from paraval.git.repositories import find_repository
from paraval.git.run_git import failure, run_git
from paraval.scratch import scratch_folder
from paraval.workspaces.changed_files import shown

# The user's own working tree, index, branches and settings: whether they are as they were.

MOST_ENTRIES = 100_000
"""That are looked at; what is beyond is not watched."""
_SHOWN = 3
_GIT = b".git"
_CACHES = frozenset({_GIT, b"__pycache__", b".mypy_cache", b".pytest_cache", b".ruff_cache"})
_SETTINGS = ("HEAD", "config", "config.worktree", "packed-refs", "info/exclude", "info/attributes")
_FOLDERS = ("refs/heads", "refs/tags", "hooks")
_SOME_IGNORED, _NONE_IGNORED = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What there was at one moment."""

    files: dict[bytes, int]
    """By path: what changes with a file and no program can set back."""
    git: dict[str, str]
    """By what it is called: `the index`, `.git/HEAD`."""


class UserTree:
    """A repository's working tree, looked at again and again. Everything here blocks."""

    def __init__(self, repo: str, leaving_out: Iterable[str | Path] = ()) -> None:
        """`leaving_out`: folders that the engine itself writes to. Raises GitError or OSError."""
        self._repository = find_repository(repo)
        self._lender = lender_of(self._repository)
        self._top = os.fsencode(self._repository.top)
        self._left_out = frozenset(os.fsencode(os.path.realpath(path)) for path in leaving_out)
        self._index: tuple[int, str] = (0, "")
        """A mark of its file, and what is in it."""
        if not self._repository.bare:
            folders = [path for path, is_folder, _ in self._walk() if is_folder]
            self._left_out |= {self._top + b"/" + path for path in self._ignored(folders)}

    def look(self) -> Fingerprint:
        """What there is now. Never raises for what it finds."""
        files = {}
        if not self._repository.bare:
            files = {path: mark for path, is_folder, mark in self._walk() if not is_folder}
        return Fingerprint(files=files, git=self._look_at_git())

    def changes(self, before: Fingerprint, now: Fingerprint) -> tuple[str, ...]:
        """What is another now, by path; empty: nothing is."""
        if now == before:
            return ()
        paths = sorted({path for path, _ in before.files.items() ^ now.files.items()})
        if paths:
            try:
                ignored = self._ignored(paths)
                paths = [path for path in paths if path not in ignored]
            except (ParavalError, OSError):
                pass  # Rather too much than too little.
        names = sorted({name for name, _ in before.git.items() ^ now.git.items()})
        return (*(shown(path) for path in paths), *names)

    def _walk(self) -> Iterator[tuple[bytes, bool, int]]:
        """Each path, whether it is a folder, and its mark."""
        pending, seen = [b""], 0
        while pending and seen < MOST_ENTRIES:
            folder = pending.pop()
            whole = self._top + b"/" + folder if folder else self._top
            with suppress(OSError), os.scandir(whole) as entries:
                for entry in entries:
                    seen += 1
                    path = folder + b"/" + entry.name if folder else entry.name
                    if entry.name in _CACHES or entry.path in self._left_out:
                        continue
                    found = entry.stat(follow_symlinks=False)
                    is_folder = stat.S_ISDIR(found.st_mode)
                    if is_folder:
                        pending.append(path)
                    yield path, is_folder, _mark(found)

    def _ignored(self, paths: Sequence[bytes]) -> set[bytes]:
        """Of these, what git ignores, by the user's own rules too. Raises GitError, StoreError or
        OSError."""
        if not paths:
            return set()
        with scratch_folder() as scratch:
            folder = scratch.folder
            lender = Lender(objects=(), excludes=self._lender.excludes)
            write_repository(f"{folder}/rules.git", lender, head="0" * 40)
            ended = run_git(
                [
                    *(f"--git-dir={folder}/rules.git", f"--work-tree={self._repository.top}"),
                    *("check-ignore", "--no-index", "-z", "--stdin"),
                ],
                env={"GIT_LITERAL_PATHSPECS": "0"},
                cwd=self._repository.top,
                stdin=b"".join(b"./" + path + b"\0" for path in paths),
            )
        if ended.exit_code not in (_SOME_IGNORED, _NONE_IGNORED):
            raise failure("git cannot tell what it ignores", ended)
        return {path.removeprefix(b"./") for path in ended.stdout.split(b"\0") if path}

    def _look_at_git(self) -> dict[str, str]:
        found = {"the index": self._look_at_index()}
        for name in _SETTINGS:
            for top in {self._repository.git_dir, self._repository.common_dir}:
                _book(found, name, Path(top, name))
        for folder in _FOLDERS:
            for place, _, names in os.walk(Path(self._repository.common_dir, folder)):
                for name in names:
                    path = Path(place, name)
                    _book(found, os.path.relpath(path, self._repository.common_dir), path)
        return found

    def _look_at_index(self) -> str:
        """By what is in it: every `git status` writes it anew."""
        try:
            mark = _mark(Path(self._repository.git_dir, "index").lstat())
        except OSError:
            return "none"
        if mark != self._index[0]:
            ended = run_git([f"--git-dir={self._repository.git_dir}", "ls-files", "--stage", "-z"])
            told = hashlib.sha256(ended.stdout).hexdigest() if ended.is_well else "not readable"
            self._index = (mark, told)
        return self._index[1]


def in_words(changed: Sequence[str]) -> str:
    """A flag: fair to a candidate that may have nothing to do with it. Empty: nothing changed."""
    if not changed:
        return ""
    first = ", ".join(changed[:_SHOWN])
    others = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    return (
        f"the repository itself was changed while it ran, by it or by someone else: {first}{others}"
    )


def _book(found: dict[str, str], name: str, path: Path) -> None:
    with suppress(OSError):
        if path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            found[f".git/{name}"] = f"{found.get(f'.git/{name}', '')}{content}"


def _mark(found: os.stat_result) -> int:
    return hash((found.st_ctime_ns, found.st_ino, found.st_size, found.st_mode))


LONGEST_WAIT_S = 1.0
"""For others to end, whose look it may be too ..."""
SHARE = 4.0
"""... where looks take long: one in so much of the time, and not more."""


class UserRepoWatch:
    """One look after each step; what changed since the look before is told to all that ran then.

    In a large repository a look takes long. So steps that end while others run share the next one;
    one that runs alone, as all that is measured does, is looked after at once, and nobody looks
    while it runs.
    """

    def __init__(self, repo: str, leaving_out: Sequence[Path]) -> None:
        """`leaving_out`: folders that the engine itself writes to."""
        self._repo = repo
        self._leaving_out = leaving_out
        self._tree: UserTree | None = None
        self._last: Fingerprint | None = None
        self._running: dict[int, list[str]] = {}
        """By the index of the trial: what was found while it ran, or waited for a look."""
        self._ended = 0
        """How many of them wait for a look."""
        self._looking = asyncio.Lock()
        """Guards `_last`: one look at a time."""
        self._next: asyncio.Task[None] | None = None
        """A look that is to come, and has not begun: whoever ended until then shares it."""
        self._looks: set[asyncio.Task[None]] = set()
        self._looked_at, self._took_s = 0.0, 0.0

    async def begin(self) -> None:
        """The first look. Where there can be none, nothing is watched."""
        try:
            await asyncio.to_thread(self._first_look)
        except (ParavalError, OSError):
            self._tree = None

    def _first_look(self) -> None:
        self._tree = UserTree(self._repo, self._leaving_out)
        began = time.monotonic()
        self._last = self._tree.look()
        self._looked_at = time.monotonic()
        self._took_s = self._looked_at - began

    def started(self, index: int) -> None:
        self._running[index] = []

    def forget(self, index: int) -> None:
        """It came to no end."""
        self._running.pop(index, None)

    async def ended(self, index: int) -> tuple[str, ...]:
        """What changed in the repository while this step ran, in words."""
        self._ended += 1
        try:
            if self._tree is not None:
                await self._looked_after()
            return tuple(dict.fromkeys(self._running[index]))
        finally:
            self._ended -= 1
            self.forget(index)

    async def close(self) -> None:
        """Calls off the looks that nobody waits for any more."""
        for task in self._looks:
            task.cancel()
        if self._looks:
            await asyncio.wait(self._looks)

    async def _looked_after(self) -> None:
        if self._next is None:
            self._next = asyncio.create_task(self._look_in_turn())
            self._looks.add(self._next)
            self._next.add_done_callback(self._looks.discard)
        # A step that is cancelled must not call off the look of the others.
        await asyncio.shield(self._next)

    async def _look_in_turn(self) -> None:
        async with self._looking:
            wait_s = min(LONGEST_WAIT_S, self._looked_at + SHARE * self._took_s - time.monotonic())
            if wait_s > 0 and self._ended < len(self._running):
                await asyncio.sleep(wait_s)
            self._next = None
            assert self._tree is not None
            words = await asyncio.to_thread(self._look, self._tree)
            for found in self._running.values():
                found.extend([words] if words else [])

    def _look(self, tree: UserTree) -> str:
        assert self._last is not None
        began = time.monotonic()
        before, self._last = self._last, tree.look()
        words = in_words(tree.changes(before, self._last))
        self._looked_at = time.monotonic()
        self._took_s = self._looked_at - began
        return words
