"""Watches the user's repository while candidates' programs run: who was running when it changed.

No sandbox, no proof: what is found is a flag for all that ran then, and no verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from paraval.errors import ParavalError
from paraval.racing.user_tree import Fingerprint, UserTree, in_words


class OutsideWatch:
    """One look after each step; what changed since the look before is told to all that ran then."""

    def __init__(self, repo: str, leaving_out: Sequence[Path]) -> None:
        """`leaving_out`: folders that the engine itself writes to."""
        self._repo = repo
        self._leaving_out = leaving_out
        self._tree: UserTree | None = None
        self._last: Fingerprint | None = None
        self._running: dict[int, list[str]] = {}
        """By the index of the trial: what was found while it ran."""
        self._looking = asyncio.Lock()
        """Guards `_last`: one look at a time."""

    async def begin(self) -> None:
        """The first look. Where there can be none, nothing is watched."""
        try:
            await asyncio.to_thread(self._first_look)
        except (ParavalError, OSError):
            self._tree = None

    def _first_look(self) -> None:
        self._tree = UserTree(self._repo, self._leaving_out)
        self._last = self._tree.look()

    def started(self, index: int) -> None:
        self._running[index] = []

    def forget(self, index: int) -> None:
        """It came to no end."""
        self._running.pop(index, None)

    async def ended(self, index: int) -> tuple[str, ...]:
        """What changed in the repository while this step ran, in words."""
        try:
            if self._tree is not None:
                async with self._looking:
                    words = await asyncio.to_thread(self._look, self._tree)
                    for found in self._running.values():
                        found.extend([words] if words else [])
            return tuple(dict.fromkeys(self._running[index]))
        finally:
            self.forget(index)

    def _look(self, tree: UserTree) -> str:
        assert self._last is not None
        now = tree.look()
        words = "" if now == self._last else in_words(tree.changed_since(self._last))
        self._last = now
        return words
