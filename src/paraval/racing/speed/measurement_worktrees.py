"""The worktrees in which candidates are measured.

A measurement worktree ("worktree") has the same tree for its whole life, so that the timed code is
always the right one. The baseline's stays; those of candidates replace one another, least recently
used first. When nothing is measured for a while, all are released, so that no test waits for an
idle one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Protocol

from paraval.racing.integrity.benchmark_checks import Footprint, footprint, left_since
from paraval.scratch import Homes, OwnHome
from paraval.workspaces.workspace import Lease, WorkspaceError

MOST_WORKTREES = 8
"""Stands at the same time, including the baseline's: each is a worktree on disk."""
LEAST_WORKTREES = 2
IDLE_S = 2.0
"""How long worktrees wait for the next measurement: blocks follow each other immediately."""
SOON_S = 10.0
"""After this wait for a slot, other worktrees must make room."""
PATIENCE_S = 900.0
"""How long to wait for a slot; a new one may have a long `setup`."""


class Slots(Protocol):
    """`workspaces.pool.Pool`, or a fake."""

    async def lease(self, tree: str | None = None) -> Lease: ...

    @property
    def is_waited_for(self) -> bool: ...

    async def at_rest(self) -> None: ...


class MeasurementWorktree:
    """One tree, in its own worktree and home."""

    def __init__(self, tree: str, lease: Lease, own: OwnHome | None) -> None:
        self.tree = tree
        self.path = lease.path
        self.top = lease.top
        self.own = own
        self.is_warm = False
        """Whether an unmeasured process has shown that the benchmark works in it."""
        self.usual: frozenset[str] = frozenset()
        """The files that its own benchmark leaves, when nothing else ran in it."""
        self.left: frozenset[str] = frozenset()
        """The files that benchmarks had left in it at the last check."""
        self._before: Footprint = {}

    async def look_before(self) -> None:
        """Record its state before the first process."""
        self._before = await self._footprint()

    async def look(self) -> None:
        """Check what was left in it since."""
        self.left = left_since(self._before, await self._footprint())

    def had(self, path: str) -> bool:
        """Whether a file existed before the first process."""
        return path in self._before

    async def settle(self) -> None:
        """Record what is left while only its own benchmark has run."""
        self.usual = self.left = left_since(self._before, await self._footprint())

    async def _footprint(self) -> Footprint:
        return await asyncio.to_thread(footprint, self.top, self.own)


class MeasurementWorktrees:
    """The measurement worktrees of a race."""

    def __init__(
        self,
        slots: Slots,
        homes: Homes | None,
        *,
        baseline: str,
        most: int = MOST_WORKTREES,
        say: Callable[[str], None] = lambda _words: None,
    ) -> None:
        """`baseline`: its tree, which slots already have. `say` shows problems to the user."""
        self._say = say
        self._slots = slots
        self._homes = homes
        self._baseline = baseline
        self._most = max(LEAST_WORKTREES, most)
        self._worktrees: dict[str, tuple[MeasurementWorktree, AsyncExitStack]] = {}
        """By tree, the most recently used last."""
        self._leaving: set[asyncio.Task[None]] = set()
        """Stands being released."""
        self._idle: asyncio.TimerHandle | None = None

    async def worktree(self, tree: str) -> MeasurementWorktree:
        """The worktree of a tree, existing or new. Raises WorkspaceError."""
        self._stay()
        known = self._worktrees.pop(tree, None)
        if known is None:
            self._make_room(self._most - 1)
            if self._leaving:
                # Otherwise there would be one slot too many in use.
                await asyncio.wait(self._leaving)
            known = await self._open(tree)
        self._worktrees[tree] = known
        return known[0]

    def rest(self) -> None:
        """Mark measurements as idle; after a while, all worktrees are released."""
        self._stay()
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(IDLE_S, self.drop_all)

    def drop(self, worktree: MeasurementWorktree) -> None:
        """Release a worktree in which something went wrong, so that it is not reused."""
        if worktree.tree in self._worktrees:
            self._let_go(worktree.tree)

    def drop_all(self) -> None:
        """Release all worktrees."""
        self._stay()
        for tree in list(self._worktrees):
            self._let_go(tree)

    async def at_rest(self) -> None:
        """Wait until released worktrees are cleaned up, because that would disturb measurements."""
        while self._leaving:
            await asyncio.wait(self._leaving)
        await self._slots.at_rest()

    async def close(self) -> None:
        """Release all; cancelling takes effect afterwards."""
        self.drop_all()
        cancelled: asyncio.CancelledError | None = None
        while self._leaving:
            try:
                await asyncio.wait(self._leaving)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    # ---- opening

    async def _open(self, tree: str) -> tuple[MeasurementWorktree, AsyncExitStack]:
        async with AsyncExitStack() as stack:
            lease = await self._lease(None if tree == self._baseline else tree)
            stack.push_async_callback(lease.release)
            own = None
            if self._homes is not None:
                own = await stack.enter_async_context(self._homes.lease())
            worktree = MeasurementWorktree(tree, lease, own)
            await worktree.look_before()
            return worktree, stack.pop_all()
        raise AssertionError("a worktree was opened, or an error raised")

    async def _lease(self, tree: str | None) -> Lease:
        # There may be fewer slots than promised, all of them held by us.
        making_way = asyncio.get_running_loop().call_later(SOON_S, self._make_way)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._slots.lease(tree)
        except TimeoutError:
            raise WorkspaceError(
                f"no worktree for measurements was available within {PATIENCE_S:.0f} s",
                hint="a benchmark needs two worktrees: check whether the disk is full",
            ) from None
        finally:
            making_way.cancel()

    def _make_way(self) -> None:
        """Release worktrees if someone waits for a slot, rather than for a long `setup`."""
        if self._slots.is_waited_for:
            self._most = max(LEAST_WORKTREES, len(self._worktrees))
            self._make_room(1)

    # ---- releasing

    def _make_room(self, most: int) -> None:
        """Release worktrees until `most` are left, always keeping the baseline's."""
        for tree in [tree for tree in self._worktrees if tree != self._baseline]:
            if len(self._worktrees) <= most:
                return
            self._let_go(tree)

    def _stay(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _let_go(self, tree: str) -> None:
        _, stack = self._worktrees.pop(tree)
        task = asyncio.get_running_loop().create_task(stack.aclose())
        self._leaving.add(task)
        task.add_done_callback(self._has_left)

    def _has_left(self, task: asyncio.Task[None]) -> None:
        self._leaving.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # Measurements are unaffected, and leftovers go with the scratch folder.
            self._say(f"A measurement worktree could not be cleaned up completely: {error}")
