"""The writer's thread of a run: one connection, commits in groups, nothing lost on a full disk."""

from __future__ import annotations

import queue
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from paraval.errors import StoreError
from paraval.records import Plan
from paraval.store.changes import Addition, Change, OnDurable, Rows, rows_of, write
from paraval.store.connection import RESUMABLE, RUN_FILE, explained
from paraval.store.locks import RunLock

SMALL_BATCH = 32
LARGEST_BATCH = 1000
BUSY_TRIES = 4
"""Each waits for SQLite's own 30 s: a lock held for less than two minutes costs time, no result."""

Deliver = Callable[[list[OnDurable]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """An engine's hold on a run, from `store`: what the ledger uses, and ends when it is closed."""

    folder: Path
    connection: sqlite3.Connection
    lock: RunLock
    session: int
    plan: Plan


class Last(Enum):
    """What is queued after all changes."""

    STOP = "write what there is, once, and end"


class Writing:
    """The writer's thread: takes what is queued, commits it in one go, tells that it is durable."""

    def __init__(
        self,
        hold: Hold,
        changes: queue.SimpleQueue[Change | Last],
        deliver: Deliver,
        on_failure: Callable[[StoreError], None],
        also_write: Callable[[], None],
    ) -> None:
        self._connection = hold.connection
        self._path = hold.folder / RUN_FILE
        self._session = hold.session
        self._queue = changes
        self._deliver = deliver
        self._on_failure = on_failure
        self._also_write = also_write
        self._kept: list[Change] = []
        self.waits = False
        """A failure was told: changes are kept, and nothing is tried until `close`."""
        self.failure: Exception | None = None
        """What `close` has to raise, as nobody was told: a last write's or a callback's error."""

    def until_stopped(self) -> None:
        stopping = False
        while not stopping:
            stopping = self._collect()
            if self._kept and (stopping or not self.waits):
                self._commit_kept(stopping=stopping)
            # Last: whoever waits for a commit waits for nothing else.
            self._also_write()

    def _collect(self) -> bool:
        """Wait for one change, then take those that are there too; whether that was the last."""
        item = self._queue.get()
        # Attempts that are told of together start together, end together and queue here together.
        # To take only a part of a long queue breaks such convoys up.
        most = min(LARGEST_BATCH, max(SMALL_BATCH, self._queue.qsize() // 4))
        while not isinstance(item, Last):
            self._kept.append(item)
            if len(self._kept) >= most:
                return False
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return False
        return True

    def _commit_kept(self, *, stopping: bool) -> None:
        try:
            self._write(self._kept)
        except Exception as error:  # noqa: BLE001 - the thread must tell of anything, and live on
            self._fail(error, stopping=stopping)
            return
        durable = [one.on_durable for one in self._kept if not isinstance(one, Addition)]
        self._kept = []
        self.waits = False
        try:
            self._deliver(durable)
        except Exception as error:  # noqa: BLE001 - the engine's; results still queued come first
            self.failure = error

    def _fail(self, error: Exception, *, stopping: bool) -> None:
        if stopping and self.waits:
            return
        self.waits = True
        if isinstance(error, sqlite3.Error):
            failure = explained(error, self._path)
        else:
            failure = StoreError(f"{self._path} cannot be written: {error!r}", hint=RESUMABLE)
        failure.__cause__ = error
        if stopping:
            self.failure = failure
        else:
            self._on_failure(failure)

    def _write(self, changes: Sequence[Change]) -> None:
        rows = rows_of(changes, self._session)
        for tries_left in reversed(range(BUSY_TRIES)):
            try:
                self._transact(rows)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or not tries_left:
                    raise
            else:
                return

    def _transact(self, rows: Rows) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            write(self._connection, rows)
            execute("COMMIT")
        except BaseException:
            # A full disk has rolled back already, and then this raises; the first error counts.
            with suppress(sqlite3.Error):
                execute("ROLLBACK")
            raise
