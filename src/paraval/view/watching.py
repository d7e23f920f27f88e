"""Follows runs while someone watches: one poller per run, however many tabs are open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from paraval.errors import ParavalError
from paraval.view.run_state import RunState

POLL_S = 0.8
_MOST_KEPT = 8
"""Runs whose state stays in memory while no one watches them."""


class RunWatch:
    """A run's state, and its poller while there are watchers."""

    def __init__(self, folder: Path) -> None:
        self.state = RunState(folder)
        self.watchers = 0
        self._poller: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        # Guards the state while a thread reads all of it; later changes are read in the loop.
        self._lock = asyncio.Lock()

    async def refresh(self) -> RunState:
        async with self._lock:
            is_new = self.state.version == 0
            read = self.state.refresh
            if await asyncio.to_thread(read) if is_new else read():
                self.touch()
        return self.state

    def touch(self) -> None:
        """Let watchers look again."""
        self.state.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, version: int, patience_s: float) -> None:
        """Wait until the state is not of this version, or for as long as this."""
        if self.state.version == version:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), patience_s)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        self.watchers += 1
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            self.watchers -= 1
            if not self.watchers and self._poller is not None:
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
        idle = [path for path, one in self._watches.items() if not one.watchers]
        for path in idle[:-_MOST_KEPT]:
            del self._watches[path]
        return watch


class SentParts:
    """What a tab shows by now, so that only what changed is sent."""

    def __init__(self) -> None:
        self._parts: dict[str, str] = {}
        self._rows: dict[str, object] = {}

    def news(
        self,
        parts: Mapping[str, str],
        rows: dict[str, object],
        render: Callable[[str], str],
    ) -> dict[str, object]:
        """What to send: parts by the ids of their elements, and rows of the list by theirs.

        `rows`: the version of each, in order. A row is rendered if its version changed.
        """
        changed = {name: html for name, html in parts.items() if self._parts.get(name) != html}
        new = [name for name, version in rows.items() if self._rows.get(name) != version]
        is_other_order = [*self._rows] != [*rows]
        self._parts.update(parts)
        self._rows = rows
        news: dict[str, object] = {"parts": changed} if changed else {}
        if new:
            news["rows"] = {name: render(name) for name in new}
        if is_other_order:
            news["order"] = [*rows]
        return news

    def has_seen(self, parts: Mapping[str, str], rows: dict[str, object]) -> None:
        """The tab was loaded with these."""
        self._parts.update(parts)
        self._rows = rows
