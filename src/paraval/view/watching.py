"""Follows runs while someone watches: one poller per run, however many tabs are open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from paraval.errors import ParavalError
from paraval.view.run_state import RunState

POLL_S = 0.5
_MOST_KEPT = 8
"""Runs whose state stays in memory while no one watches them."""


class RunWatch:
    """A run's state, and its poller while there are watchers."""

    def __init__(self, folder: Path) -> None:
        self.state = RunState(folder)
        # Guards `state`: a thread refreshes it.
        self.lock = asyncio.Lock()
        self._watchers = 0
        self._poller: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()

    @property
    def is_watched(self) -> bool:
        return self._watchers > 0

    async def refresh(self) -> None:
        async with self.lock:
            has_changed = await asyncio.to_thread(self.state.refresh)
        if has_changed:
            async with self._changed:
                self._changed.notify_all()

    async def touch(self) -> None:
        """Let watchers look again, though no file of the run changed."""
        self.state.version += 1
        async with self._changed:
            self._changed.notify_all()

    async def newer_than(self, version: int, patience_s: float) -> None:
        """Wait until the state is newer, or for as long as this."""

        async def wait() -> None:
            async with self._changed:
                await self._changed.wait_for(lambda: self.state.version != version)

        try:
            await asyncio.wait_for(wait(), patience_s)
        except TimeoutError:
            return

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[RunWatch]:
        self._watchers += 1
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())
        try:
            yield self
        finally:
            self._watchers -= 1
            if not self._watchers and self._poller is not None:
                self._poller.cancel()
                self._poller = None

    async def _poll(self) -> None:
        while True:
            # Removed, or damaged: the page says so when it is loaded again.
            with suppress(ParavalError):
                await self.refresh()
            await asyncio.sleep(POLL_S)


class Watches:
    """The runs that are shown, by their folders."""

    def __init__(self) -> None:
        self._watches: dict[Path, RunWatch] = {}

    def of(self, folder: Path) -> RunWatch:
        watch = self._watches.pop(folder, None) or RunWatch(folder)
        self._watches[folder] = watch
        idle = [path for path, one in self._watches.items() if not one.is_watched]
        for path in idle[:-_MOST_KEPT]:
            del self._watches[path]
        return watch


class SentParts:
    """What a tab shows by now, so that only what changed is sent."""

    def __init__(self) -> None:
        self._parts: dict[str, str] = {}
        self._rows: dict[str, object] = {}
        self._order: list[str] = []

    def news(
        self,
        parts: dict[str, str],
        rows: dict[str, tuple[object, Callable[[], str]]],
    ) -> dict[str, object]:
        """What to send: parts by the ids of their elements, and rows of the list by theirs.

        Each row comes with its version, and is rendered only if that changed.
        """
        news: dict[str, object] = {}
        changed = {name: html for name, html in parts.items() if self._parts.get(name) != html}
        if changed:
            news["parts"] = changed
        new_rows = {
            name: render()
            for name, (version, render) in rows.items()
            if self._rows.get(name) != version
        }
        if new_rows:
            news["rows"] = new_rows
        if self._order != [*rows]:
            news["order"] = [*rows]
        self._parts.update(parts)
        self._rows = {name: version for name, (version, _) in rows.items()}
        self._order = [*rows]
        return news
