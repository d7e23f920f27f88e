"""Watches the user's repository while candidates' programs run: who was running when it changed.

No sandbox, no proof: what is found is a flag for all that ran then, and no verdict.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from paraval.errors import ParavalError
from paraval.racing.user_tree import Fingerprint, UserTree, in_words

LONGEST_WAIT_S = 1.0
"""For others to end, whose look it may be too ..."""
SHARE = 4.0
"""... where looks take long: one in so much of the time, and not more."""


class OutsideWatch:
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
