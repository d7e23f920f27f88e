"""The store: a folder of runs. Creates, resumes, finds and reads them.

A Ledger writes what happens in a run and a RunReader reads it; both are created here.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import sqlite3
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paraval.errors import RequestError, StoreError
from paraval.processes.identity import process_identity
from paraval.records import FoundLimit, Plan, RunInfo, TrialResult
from paraval.store import plan_rows as planned
from paraval.store.connection import (
    RUN_FILE,
    NoPlanError,
    Trace,
    create_file,
    explained,
    explaining,
    has_run,
    open_for_writing,
)
from paraval.store.folder import RUNS_FOLDER, prepare_folder, require_writable, unusable
from paraval.store.index import DurationHistory, Index
from paraval.store.ledger import Ledger
from paraval.store.locks import Identity, RunLock
from paraval.store.reader import RunReader
from paraval.store.run_info import last_sign_of_life
from paraval.store.writer import RunHold
from paraval.text.suggest import nearest
from paraval.text.words import some

_BEFORE_LAST = re.compile(r"last~(\d{1,9})", re.ASCII)


_SECOND = len("20260131-120000")
"""The part of a run's id that encodes its start."""


class Store:
    """The runs in one folder. Reading requires only that it exists."""

    def __init__(self, root: Path, *, trace: Trace | None = None) -> None:
        """`trace` is called with every SQL statement of a run's writer before it runs."""
        self.root = root.absolute()
        self._trace = trace
        self._index = Index(self.root)

    @property
    def runs_folder(self) -> Path:
        """The folder that contains one folder per run; absolute. Created with the first run."""
        return self.root / RUNS_FOLDER

    # ---- writing

    def create_run(self, plan: Plan, *, seed: int, began: float | None = None) -> Ledger:
        """Create a new run with this plan and take its lock. `began`: if that was not now."""
        prepare_folder(self.root)
        began = time.time() if began is None else began
        folder = _new_folder(self.runs_folder, began)
        lock: RunLock | None = None
        try:
            lock = RunLock.acquire(folder, _own_identity())
            return self._create(folder, lock, plan, seed, began)
        except BaseException as error:
            # It has no plan, and no other process knows of it yet.
            if lock is not None:
                lock.release()
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, sqlite3.Error | OSError):
                raise explained(error, folder / RUN_FILE) from error
            raise

    def _create(self, folder: Path, lock: RunLock, plan: Plan, seed: int, began: float) -> Ledger:
        connection = create_file(folder / RUN_FILE, self._trace)
        try:
            connection.execute("BEGIN IMMEDIATE")
            planned.write_new(connection, folder.name, plan, seed)
            session = self._begin_session(connection, began)
            connection.execute("COMMIT")
            hold = RunHold(
                folder=folder, connection=connection, lock=lock, session=session, plan=plan
            )
            return self._ledger(hold, planned.ReplacedResults())
        except BaseException:
            connection.close()
            raise

    def resume_run(self, run_id: str, plan: Plan) -> Ledger:
        """Resume a run with the plan as it is now. RunBusyError if an engine has it."""
        folder = self.runs_folder / run_id
        if not has_run(folder):
            raise self._unknown(run_id)
        lock = RunLock.acquire(folder, _own_identity())
        try:
            return self._resume(folder, lock, plan)
        except BaseException as error:
            lock.release()
            if isinstance(error, sqlite3.Error | OSError):
                raise explained(error, folder / RUN_FILE) from error
            raise

    def _resume(self, folder: Path, lock: RunLock, plan: Plan) -> Ledger:
        require_writable(folder)
        connection = open_for_writing(folder / RUN_FILE, self._trace)
        try:
            connection.execute("BEGIN IMMEDIATE")
            with explaining(folder / RUN_FILE):
                _bury_dead_session(connection)
            replaced = planned.replace(connection, plan)
            session = self._begin_session(connection, time.time())
            connection.execute("COMMIT")
            hold = RunHold(
                folder=folder, connection=connection, lock=lock, session=session, plan=plan
            )
            return self._ledger(hold, replaced)
        except BaseException:
            connection.close()
            raise

    def _ledger(self, hold: RunHold, replaced: planned.ReplacedResults) -> Ledger:
        return Ledger(hold, replaced=replaced, on_close=self._index.fold)

    def _begin_session(self, connection: sqlite3.Connection, at: float) -> int:
        pid, start_time = _own_identity()
        number = connection.execute(
            "INSERT INTO session (pid, start_time, host, started_at) VALUES (?, ?, ?, ?)",
            (pid, start_time, socket.gethostname(), at),
        ).lastrowid
        assert number is not None
        return number

    def require_free(self, run: RunInfo) -> None:
        """RunBusyError if an engine is working on the run."""
        RunLock.acquire(Path(run.folder), _own_identity()).release()

    def remove(self, run: RunInfo) -> None:
        """Remove a run from disk; RunBusyError if an engine is working on it."""
        folder = Path(run.folder)
        lock = RunLock.acquire(folder, _own_identity())
        try:
            # First what makes the folder a run: half of one must not be taken for a whole.
            (folder / RUN_FILE).unlink()
            shutil.rmtree(folder)
        except OSError as error:
            raise unusable(folder, error) from error
        finally:
            lock.release()

    # ---- finding and reading

    def runs(self) -> list[RunInfo]:
        """All runs, newest first, including those whose engine was killed."""
        return self._index.runs()

    def find(self, name: str) -> RunInfo:
        """Find a run: `last`, `last~1` for the one before it, an id, a unique prefix of an id, or
        the path of a run's folder."""
        if (folder := self._folder_named(name)) is not None:
            with RunReader(folder) as reader:
                return reader.info()
        runs = self.runs()
        before = _BEFORE_LAST.fullmatch(name)
        if runs and (name == "last" or before is not None):
            self._refuse_newer_than(runs[0])
            return runs[0] if before is None else self._before_last(runs, int(before[1]))
        fitting = [run for run in runs if name and run.id.startswith(name)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise RequestError(
                f"several runs start with '{name}': {some([run.id for run in fitting], 5)}",
                hint="give more characters of the id",
            )
        raise self._unknown(name)

    def _before_last(self, runs: list[RunInfo], number: int) -> RunInfo:
        if number < len(runs):
            return runs[number]
        there = "is only 1 run" if len(runs) == 1 else f"are only {len(runs)} runs"
        oldest = "last" if len(runs) == 1 else f"last~{len(runs) - 1}"
        raise RequestError(
            f"there is no last~{number}: there {there} in {self.root}",
            hint=f"the oldest is {oldest}; `paraval runs` lists all",
        )

    def _refuse_newer_than(self, run: RunInfo) -> None:
        """Do not take an older run for the last one if the last one cannot be read."""
        for run_id, error in self.unreadable().items():
            # Ids don't show which of two runs of the same second began first.
            if run_id[:_SECOND] >= run.id[:_SECOND]:
                raise error

    def unreadable(self) -> dict[str, StoreError]:
        """The runs that `runs` leaves out, by id, with the reason."""
        listed = {run.id for run in self.runs()}
        found = {}
        for file in sorted(self.runs_folder.glob(f"*/{RUN_FILE}")):
            if file.parent.name in listed:
                continue
            try:
                RunReader(file.parent).close()
            except NoPlanError:
                continue
            except StoreError as error:
                found[file.parent.name] = error
        return found

    def reader(self, run: RunInfo) -> RunReader:
        return RunReader(Path(run.folder))

    def selection(self, run: RunInfo) -> Mapping[str, Any]:
        """The filters and overrides that the run was planned with."""
        with self.reader(run) as reader:
            return reader.selection()

    def known_results(self, run: RunInfo) -> dict[str, TrialResult]:
        """Every result of a run by its trial's key, without the trial."""
        with self.reader(run) as reader:
            return reader.known_results()

    def last_ends(self, run: RunInfo) -> dict[str, TrialResult]:
        """How the trials that the last engine added ended; skipped ones with the reason."""
        with self.reader(run) as reader:
            return reader.last_ends()

    def grows(self, run: RunInfo) -> bool:
        """Whether trials are added during the run."""
        with self.reader(run) as reader:
            return reader.grows()

    def history(self, suite: str) -> DurationHistory:
        """How long the suite's trials took in its last runs."""
        return self._index.history(suite)

    def found_limits(self, accounts: Collection[str]) -> dict[str, FoundLimit]:
        """The request limits that recent runs found for these accounts."""
        return self._index.found_limits(accounts)

    def remember_limits(self, found: Mapping[str, FoundLimit]) -> None:
        """Keep them for the next run."""
        self._index.remember_limits(found)

    def _folder_named(self, name: str) -> Path | None:
        """The folder of the run with exactly this id, or at this path, if it exists."""
        places = [Path(name)] if os.sep in name else [self.runs_folder / name, Path(name)]
        for place in places:
            folder = place.parent if place.name == RUN_FILE else place
            if name and has_run(folder):
                return folder.absolute()
        return None

    def _unknown(self, name: str) -> RequestError:
        ids = [run.id for run in self.runs()]
        if not ids:
            return RequestError(f"no run '{name}': the store {self.root} has no runs yet")
        near = nearest(name, ids)
        known = f"the closest are {some(near, 5)}" if near else f"the latest are {some(ids, 3)}"
        return RequestError(
            f"no run '{name}' in {self.root}",
            hint=f"{known}; `paraval runs` lists all",
        )


def _own_identity() -> Identity:
    identity = process_identity(os.getpid())
    assert identity is not None, "a process that asks is alive"
    return identity


def _new_folder(runs: Path, began: float) -> Path:
    while True:
        second = datetime.fromtimestamp(began, UTC).strftime("%Y%m%d-%H%M%S")
        folder = runs / f"{second}-{secrets.token_hex(2)}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise unusable(runs, error) from error
        return folder


def _bury_dead_session(connection: sqlite3.Connection) -> None:
    """Record the end of sessions whose engines were killed."""
    for number, started_at in connection.execute(
        "SELECT number, started_at FROM session WHERE ended_at IS NULL"
    ).fetchall():
        ended_at = last_sign_of_life(connection, number)
        connection.execute(
            "UPDATE session SET ended_at = ?, wall_s = ?, reason = 'died' WHERE number = ?",
            (ended_at, ended_at - started_at, number),
        )
