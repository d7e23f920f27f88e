"""A pool of slots: bounded, first come, first served, none left behind.

A slot is created when none is free, and cleaned when it is leased again. If one cannot be created,
the pool shrinks for a while; one that cannot be cleaned is discarded and replaced. A lease that is
canceled while its slot is prepared leaves it to the next one. A lease may ask for another tree than
slots start from: then `setup` runs with that tree, and its results are removed with the lease.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from paraval.dataclass import dataclass
from paraval.errors import ParavalError, TransientError
from paraval.git.run_git import GitError
from paraval.processes.quick import KillSwitch
from paraval.records import Change, HiddenFiles, Trial
from paraval.scratch import remove_tree
from paraval.threads import Threads
from paraval.workspaces.patches import apply_patch
from paraval.workspaces.setup import WorkspaceSetup
from paraval.workspaces.slots import Slot
from paraval.workspaces.workspace import (
    KeptWorkspace,
    PlacedFiles,
    SlotPlace,
    SlotSource,
    TreeSetupError,
    WorkspaceError,
    in_words,
    no_workspace,
    not_laid,
)

# How many concurrent leases a pool allows: fewer after a slot could not be created, then more
# again.

_FIRST_PATIENCE = 4
_MOST_PATIENCE = 256


class LeaseLimit:
    """A number between 1 and `at_most`."""

    def __init__(self, at_most: int) -> None:
        self._at_most = self.size = max(1, at_most)
        self._step = 1
        """How much the next failure subtracts."""
        self._patience = _FIRST_PATIENCE
        """Leases without a failure before one more is tried."""
        self._leases = 0

    def widen(self, at_most: int) -> None:
        """More may be tried, unless slots could not be created."""
        if at_most > self._at_most:
            self.size = at_most if self.size == self._at_most else self.size
            self._at_most = at_most

    def lower(self, working: int) -> None:
        """A slot could not be created: allow fewer, but never fewer than exist."""
        self.size = max(1, working, self.size - self._step)
        self._step *= 2
        self._patience = min(2 * self._patience, _MOST_PATIENCE)
        self._leases = 0

    def raise_after(self, *, is_new: bool) -> None:
        """A slot was created or prepared."""
        self._leases += 1
        if is_new:
            self._step, self._patience = 1, _FIRST_PATIENCE
        if self.size < self._at_most and (is_new or self._leases >= self._patience):
            self.size += 1
            self._leases = 0


# Turns: first come, first served, up to the capacity.


class LeaseQueue:
    """Given out while there is room, and taken back."""

    def __init__(self, room: LeaseLimit) -> None:
        self._room = room
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.taken = 0

    async def take(self, *, ahead: bool = False) -> None:
        """Wait for one; `ahead` of all that came later."""
        if self.taken < self._room.size and (ahead or not self._waiting):
            self.taken += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if ahead:
            self._waiting.appendleft(turn)
        else:
            self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._waiting.remove(turn)
            if not turn.cancelled():
                # It was given at the same moment.
                self.give_back()
            raise

    @property
    def are_waited_for(self) -> bool:
        return bool(self._waiting)

    def give_back(self) -> None:
        self.taken -= 1
        self.hand_out()

    def hand_out(self) -> None:
        """Give turns to waiters while there is room."""
        while self._waiting and self.taken < self._room.size:
            turn = self._waiting.popleft()
            if not turn.done():
                self.taken += 1
                turn.set_result(None)

    def end(self) -> None:
        """Wake all waiters: there is nothing left to wait for."""
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)


_MOST_THREADS = 32
_EXPECTED = (GitError, OSError, TransientError, WorkspaceError)
"""Among TransientErrors: the machine cannot start another thread."""
_CLOSING_S = 5.0
"""Seconds that ended processes may take to exit."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where the slots of a pool are."""

    folder: Path
    name: str
    """Every slot's folder has the same name, so that attempts cannot be told apart by it."""
    start: str = "."
    """Where attempts start in it."""

    def place(self, number: int) -> SlotPlace:
        return SlotPlace(
            number=number,
            top=str(self.folder / "slots" / str(number) / self.name),
            index=str(self.folder / "trusted" / f"{number}.index"),
            laid_index=str(self.folder / "trusted" / f"{number}.laid.index"),
            trash=str(self.folder / "trash" / str(number)),
        )

    def path_in(self, place: SlotPlace) -> str:
        return os.path.normpath(os.path.join(place.top, self.start))  # noqa: PTH118 - text


class Pool:
    """Slots that are filled from one source; an async context manager."""

    def __init__(
        self, source: SlotSource, site: Site, setup: WorkspaceSetup, *, at_most: int
    ) -> None:
        self._source = source
        self._site = site
        self._setup = setup
        self.notes = source.notes
        self._room = LeaseLimit(at_most)
        self._turns = LeaseQueue(self._room)
        """Number of leases given out or being prepared."""
        self._made = 0
        """Slots ever created: no place is used twice."""
        self._free: list[Slot] = []
        self._working: set[Slot] = set()
        """Slots created and not discarded."""
        self._tasks: set[asyncio.Task[Any]] = set()
        """Tasks that prepare, keep or remove slots; they outlive their requester."""
        self._calls: set[asyncio.Future[Any]] = set()
        """Those that run in a thread."""
        self._setup_notes: tuple[str, ...] = ()
        """Notes for the next lease."""
        self._told: set[str] = set()
        """All notes so far."""
        self._removals: set[asyncio.Task[None]] = set()
        """Those tasks that only clean up."""
        self._threads = Threads(limit=min(_MOST_THREADS, self._room.size + 4))
        self._leash = KillSwitch()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def lease(self, tree: str | None = None) -> SlotLease:
        """A clean workspace, once there is one. Raises WorkspaceError if there can be none.

        `tree`: this git tree replaces what workspaces start from, and changes are reported against
        it. The workspace's own repository shows it as uncommitted changes. Raises TreeSetupError if
        `setup` fails with it.
        """
        slot = await self._slot_for(tree)
        lease = SlotLease(self, slot, path=self._site.path_in(slot.place))
        try:
            if tree is not None:
                await self._lay(slot, tree)
        except BaseException:
            await lease.release()
            raise
        lease.notes, self._setup_notes = self._setup_notes, ()
        return lease

    async def lease_for(self, _trial: Trial) -> SlotLease:
        """The same for a trial: all start alike."""
        return await self.lease()

    def widen(self, at_most: int) -> None:
        """So many leases may be in use at a time; never fewer than before."""
        self._room.widen(at_most)

    @property
    def size(self) -> int:
        """How many slots exist."""
        return len(self._working)

    @property
    def has_free_slot(self) -> bool:
        return bool(self._free)

    def drop_free_slot(self) -> None:
        """Remove a slot that no lease uses, if there is one, to make room on the disk."""
        if self._free:
            self._throw_away(self._free.pop(0))

    @property
    def is_waited_for(self) -> bool:
        """Whether a lease waits for another to end."""
        return self._turns.are_waited_for

    async def at_rest(self) -> None:
        """Return once nothing left by earlier leases is still being removed."""
        while self._removals:
            await asyncio.wait(self._removals)

    async def close(self) -> None:
        """Remove all slots. Leases still in use become invalid."""
        if self._closed:
            return
        self._closed = True
        self._turns.end()
        for task in self._tasks:
            task.cancel()
        self._leash.pull()
        clearing = asyncio.ensure_future(self._clear())
        try:
            await asyncio.shield(clearing)
        except asyncio.CancelledError:
            # In a hurry: the rest is cleared with the run's scratch folder.
            await asyncio.wait([clearing], timeout=_CLOSING_S)
            clearing.cancel()
            raise
        finally:
            self._threads.close()

    async def _clear(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSING_S)
        for call in self._calls:
            # Its thread is abandoned: it waits for a disk, which nothing can interrupt.
            call.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        try:
            await self._threads.call(lambda: remove_tree(self._site.folder))
        except TransientError:
            remove_tree(self._site.folder)

    # ---- called by leases

    def take_back(self, slot: Slot) -> None:
        """A lease has ended."""
        if self._closed:
            return
        if self._source.is_used_again:
            self._free.append(slot)
        else:
            self._throw_away(slot)
        self._turns.give_back()

    async def keep(self, slot: Slot, folder: str) -> KeptWorkspace:
        """What changed in it; a cancel waits for this to end, since the slot is in use."""
        if self._closed:
            return _nothing_kept("the run ended before it was inspected")
        task = self._start(self._in_thread(lambda: slot.keep(folder)))
        try:
            return await _to_its_end(task)
        except TransientError as error:
            return _nothing_kept(in_words(error))
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            return _nothing_kept("the run ended before it was inspected")

    async def apply(self, slot: Slot, patch: str) -> None:
        """Repeat the changes of a patch in it; a cancel waits, as above. Raises GitError."""
        self._refuse_if_closed()
        work = self._in_thread(lambda: apply_patch(slot.place.top, patch))
        await _to_its_end(self._start(work))

    async def put_hidden(self, slot: Slot, hidden: Sequence[HiddenFiles]) -> PlacedFiles:
        """The same with hidden files. Raises WorkspaceError."""
        self._refuse_if_closed()
        work = self._in_thread(lambda: slot.put_hidden(hidden, self._site.start))
        try:
            return await _to_its_end(self._start(work))
        except _EXPECTED as error:
            hint = error.hint if isinstance(error, ParavalError) else None
            raise WorkspaceError(f"hidden files: {in_words(error)}", hint=hint) from error

    # ---- another tree

    async def _lay(self, slot: Slot, tree: str) -> None:
        """Replace what it started from. If this raises, the requester returns the slot, and it is
        cleaned or discarded."""
        self._refuse_if_closed()
        try:
            await _to_its_end(self._start(self._in_thread(lambda: slot.lay(tree))))
            await self._set_up_with_its_tree(slot)
        except TreeSetupError:
            raise
        except _EXPECTED as error:
            raise not_laid(tree, error) from error
        except asyncio.CancelledError:
            if not _is_cancelled():
                self._refuse_if_closed()
            raise
        finally:
            self._in_background(slot.empty_trash)

    async def _set_up_with_its_tree(self, slot: Slot) -> None:
        path = self._site.path_in(slot.place)
        if not self._setup.is_asked_for or not os.path.isdir(path):  # noqa: PTH112, ASYNC240 - one look
            # Without the folder that it runs in, there is nothing to set up, nor to run later.
            return
        # Not to its end: a cancel ends it, and takes effect when nothing of it is left.
        await self._start(self._setup.run_with_a_tree(slot.place, path))
        notes = await _to_its_end(self._start(self._in_thread(slot.settle_setup)))
        self._tell(notes)

    # ---- turns

    async def _turn(self, *, ahead: bool) -> None:
        """Wait until there is room for one more lease, and take it."""
        self._refuse_if_closed()
        await self._turns.take(ahead=ahead)
        self._refuse_if_closed()

    def _lower(self) -> bool:
        """A slot could not be created: allow fewer for a while. False: there are no others."""
        others = self._turns.taken - 1
        self._room.lower(len(self._working))
        self._turns.give_back()
        return others > 0 and not self._closed

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise WorkspaceError("the run has ended: its workspaces are gone")

    # ---- slots

    async def _slot_for(self, tree: str | None) -> Slot:
        has_waited = False
        while True:
            await self._turn(ahead=has_waited)
            try:
                return await self._made_ready(tree)
            except WorkspaceError as error:
                if not self._lower() or error.lasting:
                    raise
                # Others have a slot: this one waits for theirs, before all that came later.
                has_waited = True

    async def _made_ready(self, tree: str | None) -> Slot:
        """A slot for the lease whose turn it is; a cancel leaves it to another."""
        task = self._start(self._make_ready(tree))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not _is_cancelled():
                # The pool was closed, which ended the task.
                self._refuse_if_closed()
            task.add_done_callback(self._adopt)
            raise
        except WorkspaceError:
            raise
        except BaseException:
            self._turns.give_back()
            raise

    def _adopt(self, task: asyncio.Task[Slot]) -> None:
        """Free the slot that was being prepared for a canceled lease."""
        if not task.cancelled() and task.exception() is None and not self._closed:
            self._free.append(task.result())
        self._turns.give_back()

    async def _make_ready(self, tree: str | None) -> Slot:
        while True:
            self._setup.refuse_if_it_failed()
            is_new = not self._free
            slot = self._new_slot() if is_new else self._free_slot(set_up=tree is None)
            try:
                await self._in_thread(slot.make if is_new else slot.clean)
                if tree is None:
                    await self._set_up(slot)
            except BaseException as error:
                self._throw_away(slot)
                if not isinstance(error, _EXPECTED):
                    raise
                if is_new:
                    raise no_workspace(error) from error
            else:
                self._in_background(slot.empty_trash)
                self._working.add(slot)
                self._room.raise_after(is_new=is_new)
                self._turns.hand_out()
                return slot

    def _new_slot(self) -> Slot:
        self._made += 1
        return Slot(self._site.place(self._made), self._source)

    def _free_slot(self, *, set_up: bool) -> Slot:
        """Prefer a set-up slot for a lease that needs it, and another for one that does not."""
        place = next(
            (place for place, slot in enumerate(self._free) if slot.is_set_up is set_up), -1
        )
        return self._free.pop(place)

    async def _set_up(self, slot: Slot) -> None:
        if self._setup.is_asked_for and not slot.is_set_up:
            await self._setup.run(slot.place, self._site.path_in(slot.place))
            self._tell(await self._in_thread(slot.settle_setup))

    def _tell(self, notes: tuple[str, ...]) -> None:
        """With the next lease, and once."""
        fresh = [note for note in notes if note not in self._told]
        self._told.update(fresh)
        self._setup_notes += tuple(fresh)

    def _throw_away(self, slot: Slot) -> None:
        """What cannot be removed now is retried at the end."""
        self._working.discard(slot)
        self._in_background(slot.discard)

    # ---- work

    async def _in_thread(self, function: Callable[[], T]) -> T:
        def on_the_leash() -> T:
            with self._leash.held():
                return function()

        call = asyncio.ensure_future(self._threads.call(on_the_leash))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return await _to_its_end(call)

    def _in_background(self, function: Callable[[], object]) -> None:
        """Run a task that is awaited at the end at the latest."""
        if not self._closed:
            task = self._start(self._in_time(function))
            self._removals.add(task)
            task.add_done_callback(self._removals.discard)

    async def _in_time(self, function: Callable[[], object]) -> None:
        with suppress(TransientError):
            await self._in_thread(function)

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class SlotLease:
    """A slot while one attempt has it."""

    def __init__(self, pool: Pool, slot: Slot, *, path: str) -> None:
        self.path = path
        self.top = slot.place.top
        self.notes: tuple[str, ...] = ()
        self._pool = pool
        self._slot: Slot | None = slot

    async def keep(self, folder: str) -> KeptWorkspace:
        """What the attempt has changed so far; the patch is written into this folder."""
        if self._slot is None:
            return _nothing_kept("it was returned before it was inspected")
        return await self._pool.keep(self._slot, folder)

    async def apply(self, patch: str) -> None:
        """Repeat another attempt's changes from its patch. Raises GitError."""
        if self._slot is not None:
            await self._pool.apply(self._slot, patch)

    async def put_hidden(self, hidden: Sequence[HiddenFiles]) -> PlacedFiles:
        """Put hidden files into it, before graders run. Raises WorkspaceError."""
        return (
            PlacedFiles() if self._slot is None else await self._pool.put_hidden(self._slot, hidden)
        )

    async def release(self) -> None:
        """The attempt has ended, and nothing of it is running. Never raises."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self._pool.take_back(slot)


def _nothing_kept(reason: str) -> KeptWorkspace:
    return KeptWorkspace(change=Change(unknown=reason))


def _is_cancelled() -> bool:
    """Whether this task was canceled, rather than one that it waits for."""
    this = asyncio.current_task()
    return this is not None and this.cancelling() > 0


async def _to_its_end(work: asyncio.Future[T]) -> T:
    """Its result; a cancel takes effect only when it is done: nothing may continue in a slot after
    it."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return work.result()
    if not work.cancelled():
        work.exception()  # Retrieved, or asyncio complains.
    raise cancelled
