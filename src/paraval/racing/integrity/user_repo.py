"""Watches the user's repository for changes while candidates run.

The race itself does not write there. A candidate's process may, unless a sandbox prevents it, and
so may the user or an editor. So a change is a flag for all steps that ran then, not a verdict.
Ignored files are not checked: too many programs write them.
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
"""How long to wait for other steps to end, to share a check ..."""
SHARE = 4.0
"""... if checks are slow: time between checks, as a multiple of their duration."""
_SHOWN = 3
_CACHES = frozenset({b"__pycache__", b".mypy_cache", b".pytest_cache", b".ruff_cache"})
_NOT_ENTERED = frozenset({*map(os.fsdecode, _CACHES), ".git", ".venv", "node_modules"})
_OF_GIT = (
    *("HEAD", "config", "config.worktree", "packed-refs", "info/exclude", "info/attributes"),
    *("refs/heads/**/*", "refs/tags/**/*", "hooks/*"),
)

Fingerprint = dict[str, str]
"""The state at one moment: path or name -> a value that changes with it."""


class UserRepo:
    """Checks its working tree, index, branches and settings. Everything blocks."""

    def __init__(self, repo: str, leaving_out: Iterable[str | Path] = ()) -> None:
        """`leaving_out`: folders that the engine itself writes to. Raises GitError or OSError."""
        self._repository = find_repository(repo)
        self._commit = resolve(self._repository, "HEAD")
        self._left_out = tuple(os.fsencode(os.path.realpath(path)) + b"/" for path in leaving_out)
        self._known: tuple[Footprint, str, Fingerprint] | None = None
        """Files and index of the last full check, and its result."""

    def look(self) -> Fingerprint:
        """The current state. Never raises because of what it finds."""
        # Running git takes fifty times as long: only if files were written.
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
        """The files that differ from the commit at the start; all others are unchanged."""
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
        # In a linked worktree, the first is its own and the second is shared.
        for top in {Path(self._repository.git_dir), Path(self._repository.common_dir)}:
            for path in (path for pattern in _OF_GIT for path in top.glob(pattern)):
                name = f".git/{path.relative_to(top)}"
                with suppress(OSError):
                    if path.is_file():
                        content = hashlib.sha256(path.read_bytes()).hexdigest()
                        found[name] = found.get(name, "") + content
        return found

    def _index(self) -> str:
        """By its content, because every `git status` rewrites it."""
        ended = run_git([f"--git-dir={self._repository.git_dir}", "ls-files", "--stage", "-z"])
        return hashlib.sha256(ended.stdout).hexdigest() if ended.is_well else "unreadable"


def _mark(path: bytes) -> str:
    """A mark that programs cannot reset."""
    try:
        found = os.lstat(path)
    except OSError:
        return "not there"
    return f"{found.st_ctime_ns} {found.st_ino} {found.st_size} {found.st_mode}"


def changes(before: Fingerprint, now: Fingerprint) -> tuple[str, ...]:
    """The paths or names that changed."""
    return tuple(sorted({name for name, _ in before.items() ^ now.items()}))


def in_words(changed: Sequence[str]) -> str:
    """A flag, worded for a candidate that may be innocent; empty if nothing changed."""
    if not changed:
        return ""
    which = some(changed, _SHOWN)
    return f"the repository changed while it ran, because of it or something else: {which}"


class RepoWatch:
    """Checks after each step; a change since the last check counts for all steps that ran then.

    In a large repository a check is slow. So steps that end while others run share the next one. A
    step that runs exclusively, like all measurements, is checked immediately, and never during it.
    """

    def __init__(self, repo: str, leaving_out: Sequence[Path]) -> None:
        """`leaving_out`: folders that the engine itself writes to."""
        self._repo = repo
        self._leaving_out = leaving_out
        self._watched: UserRepo | None = None
        self._last: Fingerprint = {}
        self._running: dict[int, list[str]] = {}
        """By trial index: what was found while the step ran or waited for a check."""
        self._ended = 0
        """How many of them wait for a check."""
        self._looking = asyncio.Lock()
        """Guards `_last`: one check at a time."""
        self._began, self._took_s = 0.0, 0.0
        """Of the last check."""

    async def begin(self) -> None:
        """Do the first check. If it fails, nothing is watched."""
        with suppress(ParavalError, OSError):
            watched = await asyncio.to_thread(UserRepo, self._repo, self._leaving_out)
            await self._look(watched)
            self._watched = watched

    def started(self, index: int) -> None:
        self._running[index] = []

    def forget(self, index: int) -> None:
        """Forget a step that did not finish."""
        self._running.pop(index, None)

    async def ended(self, index: int) -> tuple[str, ...]:
        """What changed in the repository while this step ran, in words."""
        ended_at = time.monotonic()
        self._ended += 1
        try:
            async with self._looking:
                # Another step's check may have covered one that waited here.
                if self._watched is not None and self._began < ended_at:
                    await self._wait_for_others()
                    await self._look(self._watched)
            return tuple(dict.fromkeys(self._running[index]))
        finally:
            self._ended -= 1
            self.forget(index)

    async def _wait_for_others(self) -> None:
        await asyncio.sleep(0)  # Count steps that end at the same moment first.
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
