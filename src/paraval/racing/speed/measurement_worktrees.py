"""Where candidates are measured: a worktree with one tree laid on it, while that is measured.

A stand belongs to one tree for its life and is handed to no other, so that what is timed is always
the code it is called by. The baseline's stays; those of candidates make room for one another, the
one that waited longest first. When nothing is measured for a while all are given back: no test
waits for a slot that only stands there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Protocol

from paraval.racing.integrity.benchmark_checks import Footprint, footprint, left_since
from paraval.scratch import Homes, OwnHome
from paraval.workspaces.workspace import Lease, WorkspaceError

MOST_STANDS = 8
"""At once, the baseline's among them: each is a worktree on the disk."""
LEAST_STANDS = 2
IDLE_S = 2.0
"""How long all wait for the next measurement: blocks follow one another at once, other steps
don't."""
SOON_S = 10.0
"""After so long without a slot, other stands are in the way."""
PATIENCE_S = 900.0
"""A slot that is made anew may have a long `setup`; past this there is none to be had."""


class Slots(Protocol):
    """`workspaces.pool.Pool`, or a fake."""

    async def lease(self, tree: str | None = None) -> Lease: ...

    @property
    def is_waited_for(self) -> bool: ...

    async def at_rest(self) -> None: ...


class MeasurementWorktree:
    """One tree, in a worktree and a home of its own."""

    def __init__(self, tree: str, lease: Lease, own: OwnHome | None) -> None:
        self.tree = tree
        self.path = lease.path
        self.top = lease.top
        self.own = own
        self.is_warm = False
        """True: one process, which nobody measured, has shown that the benchmark works in it."""
        self.usual: frozenset[str] = frozenset()
        """What its own benchmark leaves, as long as it was alone with it."""
        self.left: frozenset[str] = frozenset()
        """What benchmarks left in it, when it was last looked at."""
        self._before: Footprint = {}
        self._settled: Footprint = {}

    async def look_before(self) -> None:
        """As it is before the first process."""
        self._before = await self._footprint()

    async def look(self) -> None:
        """At what became of it since."""
        self.left = left_since(self._before, await self._footprint(), self._settled)

    def had(self, path: str) -> bool:
        """Whether a file was there before the first process."""
        return path in self._before

    async def settle(self) -> None:
        """Nothing but its own benchmark has run so far: all that was left is its own doing."""
        self._settled = await self._footprint()
        self.usual = self.left = left_since(self._before, self._settled, {})

    async def _footprint(self) -> Footprint:
        return await asyncio.to_thread(footprint, self.top, self.own)


class MeasurementWorktrees:
    """Those of a race."""

    def __init__(
        self,
        slots: Slots,
        homes: Homes | None,
        *,
        baseline: str,
        most: int = MOST_STANDS,
        say: Callable[[str], None] = lambda _words: None,
    ) -> None:
        """`baseline`: its tree, which slots have already. `say` tells a person of trouble."""
        self._say = say
        self._slots = slots
        self._homes = homes
        self._baseline = baseline
        self._most = max(LEAST_STANDS, most)
        self._stands: dict[str, tuple[MeasurementWorktree, AsyncExitStack]] = {}
        """By tree, the one that was used last at the end."""
        self._leaving: set[asyncio.Task[None]] = set()
        """Being given back."""
        self._idle: asyncio.TimerHandle | None = None

    async def stand(self, tree: str) -> MeasurementWorktree:
        """Its own: the one that it has, or a new one. Raises WorkspaceError."""
        self._stay()
        known = self._stands.pop(tree, None)
        if known is None:
            self._make_room(self._most - 1)
            if self._leaving:
                # Or there were one slot more than is held for this.
                await asyncio.wait(self._leaving)
            known = await self._open(tree)
        self._stands[tree] = known
        return known[0]

    def rest(self) -> None:
        """Nothing is measured now; if that lasts, all go."""
        self._stay()
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(IDLE_S, self.drop_all)

    def drop(self, stand: MeasurementWorktree) -> None:
        """One in which something went wrong: what is left there is nobody's to build on."""
        if stand.tree in self._stands:
            self._let_go(stand.tree)

    def drop_all(self) -> None:
        """The same where nobody knows in which."""
        self._stay()
        for tree in list(self._stands):
            self._let_go(tree)

    async def at_rest(self) -> None:
        """Returns when nothing that was given back is being cleared away any more: that would
        disturb what is measured."""
        while self._leaving:
            await asyncio.wait(self._leaving)
        await self._slots.at_rest()

    async def close(self) -> None:
        """Give all back; a cancel is heard when that is done."""
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
            stand = MeasurementWorktree(tree, lease, own)
            await stand.look_before()
            return stand, stack.pop_all()
        raise AssertionError("a stand is opened, or why not is told")

    async def _lease(self, tree: str | None) -> Lease:
        # There may be fewer slots than were promised, and none of them is held but by us.
        making_way = asyncio.get_running_loop().call_later(SOON_S, self._make_way)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._slots.lease(tree)
        except TimeoutError:
            raise WorkspaceError(
                f"no worktree to measure in could be had within {PATIENCE_S:.0f} s",
                hint="a benchmark needs two at once: look whether the disk is full",
            ) from None
        finally:
            making_way.cancel()

    def _make_way(self) -> None:
        """For one who waits for a slot; a long `setup` in one is no reason to."""
        if self._slots.is_waited_for:
            self._most = max(LEAST_STANDS, len(self._stands))
            self._make_room(1)

    # ---- giving back

    def _make_room(self, most: int) -> None:
        """Until so many are left; the baseline's is always among them."""
        for tree in [tree for tree in self._stands if tree != self._baseline]:
            if len(self._stands) <= most:
                return
            self._let_go(tree)

    def _stay(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _let_go(self, tree: str) -> None:
        _, stack = self._stands.pop(tree)
        task = asyncio.get_running_loop().create_task(stack.aclose())
        self._leaving.add(task)
        task.add_done_callback(self._has_left)

    def _has_left(self, task: asyncio.Task[None]) -> None:
        self._leaving.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # No measurement is worse for it, and what is left goes with the scratch folder.
            self._say(f"A place that was measured in could not be given back in full: {error}")
