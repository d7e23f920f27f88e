"""Watches the user's repository while candidates' programs run: who was running when it changed.

Nothing of a race writes there. A candidate's process may, where no sandbox keeps it from that; and
so may the user meanwhile, or an editor. So what is found is a flag for all that ran then, and no
verdict. What git ignores is not looked at: too many programs write there.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from paraval.errors import ParavalError
from paraval.git.repositories import find_repository, resolve
from paraval.git.run_git import run_git
from paraval.git.snapshots import differing_paths
from paraval.racing.integrity.benchmark_checks import Footprint, files_below
from paraval.text.words import some
from paraval.workspaces.changed_files import shown

LONGEST_WAIT_S = 1.0
"""For others to end, whose look it may be too ..."""
SHARE = 4.0
"""... where looks take long: one in so much of the time, and not more."""
_SHOWN = 3
_CACHES = frozenset({b"__pycache__", b".mypy_cache", b".pytest_cache", b".ruff_cache"})
_NOT_ENTERED = frozenset({*map(os.fsdecode, _CACHES), ".git", ".venv", "node_modules"})
_OF_GIT = (
    *("HEAD", "config", "config.worktree", "packed-refs", "info/exclude", "info/attributes"),
    *("refs/heads/**/*", "refs/tags/**/*", "hooks/*"),
)

Fingerprint = dict[str, str]
"""What there was at one moment, by path or name: what changes with it."""


class UserRepo:
    """Its working tree, index, branches and settings, looked at again and again. All blocks."""

    def __init__(self, repo: str, leaving_out: Iterable[str | Path] = ()) -> None:
        """`leaving_out`: folders that the engine itself writes to. Raises GitError or OSError."""
        self._repository = find_repository(repo)
        self._commit = resolve(self._repository, "HEAD")
        self._left_out = tuple(os.fsencode(os.path.realpath(path)) + b"/" for path in leaving_out)
        self._known: tuple[Footprint, str, Fingerprint] | None = None
        """What was written to when, and what git told then."""

    def look(self) -> Fingerprint:
        """What there is now. Never raises for what it finds."""
        # To ask git takes fifty times as long: only where files have been written to.
        index = _mark(os.fsencode(self._repository.git_dir) + b"/index")
        written, known = self._written(), self._known
        if known is None or known[:2] != (written, index):
            known = (written, index, {**self._files(), "the index": self._index()})
            self._known = known
        return {**known[2], **self._git_files()}

    def _written(self) -> Footprint:
        if self._repository.bare:
            return {}
        top = self._repository.top
        left_out = tuple(map(os.fsdecode, self._left_out))
        found = files_below(top, not_entered=_NOT_ENTERED)
        return {path: at for path, at in found.items() if not f"{top}/{path}".startswith(left_out)}

    def _files(self) -> Fingerprint:
        """Those that are not as in the commit that the race found; all others are as they were."""
        if self._repository.bare:
            return {}
        try:
            differing = differing_paths(self._repository, self._commit)
        except (ParavalError, OSError):
            return {".git": "unreadable"}
        top = os.fsencode(self._repository.top) + b"/"
        return {
            shown(path): _mark(top + path)
            for path in differing
            if _CACHES.isdisjoint(path.split(b"/")) and not (top + path).startswith(self._left_out)
        }

    def _git_files(self) -> Fingerprint:
        found: Fingerprint = {}
        # In a worktree that git made, the one is its own and the other is shared by all.
        for top in {Path(self._repository.git_dir), Path(self._repository.common_dir)}:
            for path in (path for pattern in _OF_GIT for path in top.glob(pattern)):
                name = f".git/{path.relative_to(top)}"
                with suppress(OSError):
                    if path.is_file():
                        content = hashlib.sha256(path.read_bytes()).hexdigest()
                        found[name] = found.get(name, "") + content
        return found

    def _index(self) -> str:
        """By what is in it: every `git status` writes it anew."""
        ended = run_git([f"--git-dir={self._repository.git_dir}", "ls-files", "--stage", "-z"])
        return hashlib.sha256(ended.stdout).hexdigest() if ended.is_well else "unreadable"


def _mark(path: bytes) -> str:
    """What no program can set back."""
    try:
        found = os.lstat(path)
    except OSError:
        return "not there"
    return f"{found.st_ctime_ns} {found.st_ino} {found.st_size} {found.st_mode}"


def changes(before: Fingerprint, now: Fingerprint) -> tuple[str, ...]:
    """What is another now, by path or name; empty: nothing is."""
    return tuple(sorted({name for name, _ in before.items() ^ now.items()}))


def in_words(changed: Sequence[str]) -> str:
    """A flag: fair to a candidate that may have nothing to do with it. Empty: nothing changed."""
    if not changed:
        return ""
    which = some(changed, _SHOWN)
    return f"the repository itself was changed while it ran, by it or by someone else: {which}"


class RepoWatch:
    """One look after each step; what changed since the look before is told to all that ran then.

    In a large repository a look takes long. So steps that end while others run share the next one;
    one that runs alone, as all that is measured does, is looked after at once, and nobody looks
    while it runs.
    """

    def __init__(self, repo: str, leaving_out: Sequence[Path]) -> None:
        """`leaving_out`: folders that the engine itself writes to."""
        self._repo = repo
        self._leaving_out = leaving_out
        self._watched: UserRepo | None = None
        self._last: Fingerprint = {}
        self._running: dict[int, list[str]] = {}
        """By the index of the trial: what was found while it ran, or waited for a look."""
        self._ended = 0
        """How many of them wait for a look."""
        self._looking = asyncio.Lock()
        """Guards `_last`: one look at a time."""
        self._began, self._took_s = 0.0, 0.0
        """The last look."""

    async def begin(self) -> None:
        """The first look. Where there can be none, nothing is watched."""
        with suppress(ParavalError, OSError):
            watched = await asyncio.to_thread(UserRepo, self._repo, self._leaving_out)
            await self._look(watched)
            self._watched = watched

    def started(self, index: int) -> None:
        self._running[index] = []

    def forget(self, index: int) -> None:
        """It came to no end."""
        self._running.pop(index, None)

    async def ended(self, index: int) -> tuple[str, ...]:
        """What changed in the repository while this step ran, in words."""
        ended_at = time.monotonic()
        self._ended += 1
        try:
            async with self._looking:
                # One that waited here may have been seen by the look of another.
                if self._watched is not None and self._began < ended_at:
                    await self._wait_for_others()
                    await self._look(self._watched)
            return tuple(dict.fromkeys(self._running[index]))
        finally:
            self._ended -= 1
            self.forget(index)

    async def _wait_for_others(self) -> None:
        await asyncio.sleep(0)  # Those that end at the same moment are counted first.
        due = self._began + (1.0 + SHARE) * self._took_s
        wait_s = min(LONGEST_WAIT_S, due - time.monotonic())
        if wait_s > 0 and self._ended < len(self._running):
            await asyncio.sleep(wait_s)

    async def _look(self, watched: UserRepo) -> None:
        began = time.monotonic()
        now = await asyncio.to_thread(watched.look)
        words = in_words(changes(self._last, now)) if self._last else ""
        self._last, self._began, self._took_s = now, began, time.monotonic() - began
        for found in self._running.values():
            found.extend([words] if words else [])
