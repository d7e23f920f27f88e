"""`index.db`: a cache of what is known about all runs of a store, derived from their folders.

The folders are the truth. Each row has the fingerprint of the file it was read from; a row that
doesn't match its folder is read again, and an index that is missing, damaged, of another version or
not ours is rebuilt. It may be lost at any time, and no engine fails because of it.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import sqlite3
import time
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import Field, asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

from paraval.dataclass import dataclass
from paraval.errors import StoreError
from paraval.records import FoundLimit, Outcome, RunInfo, Variant
from paraval.store.connection import RUN_FILE, ReadingFile, explaining, fingerprint, has_run
from paraval.store.encoding import content_of, mapping_of, required_number, to_json
from paraval.store.folder import RUNS_FOLDER, unreadable
from paraval.store.locks import is_worked_on
from paraval.store.plan_rows import about_from
from paraval.store.reader import RunReader
from paraval.store.run_info import (
    Spent,
    checked_info,
    is_carried_over,
    is_from_cache,
    spent_in,
    tokens_of,
    whole_usd,
)
from paraval.store.schema import (
    APPLICATION_ID,
    INDEX_SCHEMA,
    INDEX_TABLES,
    foreign_name,
    statements_of,
)

INDEX_FILE = "index.db"
HISTORY_RUNS = 10
LIMITS_LAST_S = 7 * 86_400.0
"""Older limits are ignored."""
PATIENCE_S = 10.0
"""Seconds to wait for the index's lock, which is held for milliseconds; after that the folders are
read instead."""
SHORTEST_S = 1e-4
"""Shorter durations are equivalent for scheduling, and zero has no logarithm."""

_log = logging.getLogger(__name__)


def index_version(remembered: Iterable[Field[Any]]) -> int:
    """A version number derived from the index's tables and the fields it caches."""
    words = [INDEX_SCHEMA, *(f"{field.name}: {field.type}" for field in remembered)]
    # PRAGMA user_version has 31 bits, and is 0 in an empty file.
    return zlib.crc32("\n".join(words).encode()) % (2**31 - 1) + 1


INDEX_VERSION = index_version(fields(RunInfo))


class HistoryRow(NamedTuple):
    """Durations, costs and resource use of the trials of one case and variant."""

    case_id: str
    variant: Variant
    n: int
    mean_log: float
    """Mean of the natural logarithms of the durations in seconds."""
    mean_cost_usd: float | None = None
    """Mean cost per attempt, judges included; None if no cost is known."""
    mean_tokens: float | None = None
    """Mean input plus output tokens of the target only; None if unknown."""
    memory_bytes: int | None = None
    """Peak memory of any attempt; None if not measured."""
    cores: float | None = None
    """Mean number of busy cores; None if not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationHistory:
    """Durations, costs and resource needs from a suite's last runs."""

    rows: tuple[HistoryRow, ...] = ()


class _MachineUse(NamedTuple):
    """Resource use of an attempt; None if not measured."""

    memory_bytes: float | None = None
    cpu_s: float | None = None


@dataclass(slots=True)
class _Sums:
    """Sums for one case and variant, over one run or several."""

    n: int = 0
    sum_log: float = 0.0
    priced: int = 0
    sum_usd: float = 0.0
    measured: int = 0
    sum_tokens: float = 0.0
    most_memory: int = 0
    watched_s: float = 0.0
    sum_cpu_s: float = 0.0

    def row(self) -> tuple[float, ...]:
        """Values in the order of the history's columns; `astuple` is ten times slower."""
        return (
            self.n,
            self.sum_log,
            self.priced,
            self.sum_usd,
            self.measured,
            self.sum_tokens,
            self.most_memory,
            self.watched_s,
            self.sum_cpu_s,
        )

    def add(self, other: _Sums) -> None:
        self.n += other.n
        self.sum_log += other.sum_log
        self.priced += other.priced
        self.sum_usd += other.sum_usd
        self.measured += other.measured
        self.sum_tokens += other.sum_tokens
        self.most_memory = max(self.most_memory, other.most_memory)
        self.watched_s += other.watched_s
        self.sum_cpu_s += other.sum_cpu_s

    def add_attempt(self, duration_s: float, spent: Spent, taken: _MachineUse) -> None:
        self.n += 1
        self.sum_log += math.log(max(duration_s, SHORTEST_S))
        if (cost := whole_usd(spent)) is not None:
            self.priced += 1
            self.sum_usd += cost
        if (tokens := tokens_of(spent.target)) is not None:
            self.measured += 1
            self.sum_tokens += tokens
        if taken.memory_bytes is not None:
            self.most_memory = max(self.most_memory, int(taken.memory_bytes))
        if taken.cpu_s is not None:
            self.watched_s += duration_s
            self.sum_cpu_s += taken.cpu_s


_ByTrials = dict[tuple[str, str], _Sums]
"""Case id and variant, as JSON -> their sums."""


class Index:
    """The runs of a store, from the index where it is current, else from their folders."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def runs(self) -> list[RunInfo]:
        """All runs that have a plan, newest first."""
        known = self._known()
        found, learned = [], []
        for folder in _run_folders(self._root):
            mark = _settled_fingerprint(folder)
            known_mark, text = known.get(folder.name, (None, ""))
            info = _info_from(text, folder) if mark is not None and mark == known_mark else None
            if info is not None:
                found.append(info)
            elif (info := _read_run(folder)) is not None:
                found.append(info)
                if mark is not None:
                    learned.append((info, mark))
        self._remember(learned, gone=known.keys() - {info.id for info in found})
        return sorted(found, key=lambda info: (info.started_at, info.id), reverse=True)

    def fold(self, info: RunInfo) -> None:
        """Index a run that has just been closed."""
        mark = _settled_fingerprint(Path(info.folder))
        if mark is not None:
            self._remember([(info, mark)], gone=set())

    def history(self, suite: str) -> DurationHistory:
        """Durations and costs from the suite's last runs, including unfinished ones."""
        try:
            last = [
                info
                for info in self.runs()
                # A regrade only grades: it shows nothing about the targets.
                if info.suite == suite and info.regraded_from is None
            ][:HISTORY_RUNS]
        except StoreError as error:
            # Durations only help to plan; without them the run is planned anyway.
            _log.debug("no durations from %s: %s", self._root, error.message)
            return DurationHistory()
        settled = {info.id for info in last if _settled_fingerprint(Path(info.folder)) is not None}
        remembered = self._remembered_sums(sorted(settled))
        totals: _ByTrials = defaultdict(_Sums)
        for info in last:
            sums = remembered.get(info.id)
            found = sums if sums is not None else _read_sums(Path(info.folder))
            for trials, more in found.items():
                totals[trials].add(more)
        return DurationHistory(rows=tuple(_history_rows(totals)))

    def found_limits(self, accounts: Collection[str]) -> dict[str, FoundLimit]:
        """What recent runs found for these accounts. A starting point: it may be lost."""
        now = time.time()
        found = {}
        try:
            if not accounts or not (self._root / INDEX_FILE).exists():
                return {}
            with self._opened() as connection:
                rows = connection.execute("SELECT * FROM found_limit").fetchall()
            for account, *values in rows:
                per_minute, found_at = map(required_number, values)
                age_s = now - found_at
                if account in accounts and per_minute > 0 and 0 <= age_s <= LIMITS_LAST_S:
                    found[account] = FoundLimit(requests_per_minute=per_minute, age_s=age_s)
        except (OSError, sqlite3.Error, ValueError) as error:
            _log.debug("the index of %s cannot be read: %s", self._root, error)
        return found

    def remember_limits(self, found: Mapping[str, FoundLimit]) -> None:
        now = time.time()
        rows = [(name, one.requests_per_minute, now) for name, one in found.items()]
        try:
            if rows:
                with self._opened() as connection:
                    connection.executemany(
                        "INSERT OR REPLACE INTO found_limit VALUES (?, ?, ?)", rows
                    )
        except (OSError, sqlite3.Error) as error:
            _log.debug("the index of %s cannot be written: %s", self._root, error)

    # ---- the file

    def _known(self) -> dict[str, tuple[str, str]]:
        """Run id -> fingerprint and info."""
        try:
            if not (self._root / INDEX_FILE).exists():
                return {}
            with self._opened() as connection:
                rows = connection.execute("SELECT id, fingerprint, info FROM run").fetchall()
        except (OSError, sqlite3.Error) as error:
            _log.debug("the index of %s cannot be read: %s", self._root, error)
            return {}
        return {run_id: (mark, info) for run_id, mark, info in rows}

    def _remembered_sums(self, run_ids: list[str]) -> dict[str, _ByTrials]:
        """Run id -> sums, for runs whose history is in the index."""
        if not run_ids:
            return {}
        sums: dict[str, _ByTrials] = {}
        try:
            with self._opened() as connection:
                for run_id in run_ids:
                    if rows := connection.execute(_REMEMBERED, (run_id,)).fetchall():
                        sums[run_id] = {
                            (case, variant): _Sums(*map(required_number, row))  # type: ignore[arg-type]  # as they were written
                            for case, variant, *row in rows
                        }
        except (OSError, sqlite3.Error, ValueError) as error:
            _log.debug("the index of %s cannot be read: %s", self._root, error)
            return {}
        return sums

    def _remember(self, learned: list[tuple[RunInfo, str]], *, gone: set[str]) -> None:
        if not learned and not gone:
            return
        try:
            # Read before the index is locked, so that other processes wait only for writes.
            read = [(info, mark, _read_sums(Path(info.folder))) for info, mark in learned]
            with self._opened() as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("DELETE FROM run WHERE id = ?", [(name,) for name in gone])
                for info, mark, sums in read:
                    _replace_run(connection, info, mark, sums)
                connection.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            _log.debug("the index of %s cannot be written: %s", self._root, error)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """The index, rebuilt if necessary, for exclusive use.

        The lock is our own, not SQLite's: a damaged file may only be replaced when no other engine
        has it open, or that engine's rollback journal would be applied to the new file.
        """
        with _locked(self._root / "index.lock"):
            path = self._root / INDEX_FILE
            try:
                connection = _connect(path)
            except _OtherVersionError:
                path.unlink()
                connection = _connect(path)
            except sqlite3.Error as error:
                _log.debug("rebuilding %s: %s", path, error)
                _set_aside(path)
                connection = _connect(path)
            try:
                yield connection
            except sqlite3.DatabaseError as error:
                connection.close()
                if _is_damage(error):
                    _set_aside(path)
                raise
            finally:
                connection.close()


class _OtherVersionError(sqlite3.DatabaseError):
    """The index is ours and sound, but of another version; it can be discarded."""


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    try:
        marks = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _MARKS]
        if marks == [0, 0] and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            _create(connection)
        elif marks[0] != APPLICATION_ID:
            raise sqlite3.DatabaseError("not ours")
        elif marks[1] != INDEX_VERSION:
            raise _OtherVersionError
        elif foreign_name(connection, INDEX_TABLES) is not None:
            raise sqlite3.DatabaseError("not ours alone")
        # Not WAL: several engines write here, and SQLite before 3.51.3 can corrupt a WAL file when
        # two do so concurrently.
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


_MARKS = ("application_id", "user_version")


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in statements_of(INDEX_SCHEMA):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {INDEX_VERSION}")
    connection.execute("COMMIT")


def _set_aside(path: Path) -> None:
    """Rename instead of removing: the file may belong to another program."""
    stamp = f"{time.time_ns():x}"
    for ending in ("", "-journal", "-wal", "-shm"):
        file = path.with_name(path.name + ending)
        if file.exists():
            file.rename(path.with_name(f"index-set-aside-{stamp}.db{ending}"))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= give_up_at:
                    raise
                time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _replace_run(connection: sqlite3.Connection, info: RunInfo, mark: str, sums: _ByTrials) -> None:
    facts = asdict(info)
    del facts["folder"]
    connection.execute("DELETE FROM run WHERE id = ?", (info.id,))
    row = (info.id, mark, info.suite, info.started_at, to_json(facts))
    connection.execute("INSERT INTO run VALUES (?, ?, ?, ?, ?)", row)
    connection.executemany(
        "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(info.id, *trials, *their.row()) for trials, their in sums.items()],
    )
    connection.execute(
        "DELETE FROM history WHERE run_id IN (SELECT id FROM run WHERE suite = ?"
        " ORDER BY started_at DESC, id DESC LIMIT -1 OFFSET ?)",
        (info.suite, HISTORY_RUNS),
    )


# ---- the folders


def _run_folders(root: Path) -> list[Path]:
    runs = root / RUNS_FOLDER
    try:
        entries = list(runs.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(runs, error) from error
    return [folder for folder in entries if _may_be_run(folder)]


def _may_be_run(folder: Path) -> bool:
    try:
        return has_run(folder)
    except StoreError as error:
        _log.debug("%s is left out of the list of runs: %s", folder, error.message)
        return False


def _settled_fingerprint(folder: Path) -> str | None:
    """The fingerprint of a run that no engine works on; None if its file may still change."""
    mark = fingerprint(folder / RUN_FILE)
    return None if mark is None or is_worked_on(folder) else mark


def _info_from(text: str, folder: Path) -> RunInfo | None:
    """Decode a row; None if it is invalid."""
    try:
        told = mapping_of(text)
        return checked_info(RunInfo(**{**told, **about_from(told)}, folder=str(folder)))
    except (TypeError, ValueError, LookupError, AttributeError):
        return None


def _read_run(folder: Path) -> RunInfo | None:
    try:
        with RunReader(folder) as reader:
            return reader.info()
    except StoreError as error:
        _log.debug("%s is left out of the list of runs: %s", folder, error.message)
        return None


def _read_sums(folder: Path) -> _ByTrials:
    """Durations, costs and resource needs of the deciding attempts, by case and variant.

    A timeout's duration is a lower bound, which is better than nothing. Refusals and infrastructure
    errors say nothing about the trial's duration, and a cached answer took no time or money; an
    answer kept from an earlier attempt while its judge was unavailable took its time in that
    attempt.
    """
    path = folder / RUN_FILE
    silent: Mapping[str, str] = {
        "infra": Outcome.INFRA_ERROR,
        "refused": Outcome.RATE_LIMITED,
        "skipped": Outcome.SKIPPED,
    }
    try:
        with closing(ReadingFile(path, worked_on=is_worked_on(folder))) as file, explaining(path):
            sums: _ByTrials = defaultdict(_Sums)
            for case, variant, duration_s, content in file.connection.execute(_DECIDED, silent):
                spent = spent_in(content)
                if not (is_from_cache(spent.target) or is_carried_over(spent)):
                    took_s = required_number(duration_s)
                    sums[case, variant].add_attempt(took_s, spent, _taken_in(content))
            return sums
    except StoreError as error:
        _log.debug("no durations from %s: %s", folder, error.message)
        return {}


def _taken_in(content: str) -> _MachineUse:
    """Decode from an attempt's stored content; most contents need not be parsed."""
    if '"cpu_s"' not in content and '"memory_bytes"' not in content:
        return _MachineUse()
    parsed = content_of(content)
    return _MachineUse(*(_amount(parsed.get(name)) for name in _MachineUse._fields))


def _amount(told: object) -> float | None:
    if isinstance(told, bool) or not isinstance(told, int | float):
        return None
    return told if 0 <= told < 2**62 else None


def _history_rows(totals: _ByTrials) -> Iterator[HistoryRow]:
    variants: dict[str, Variant] = {}
    for (case_id, text), sums in totals.items():
        try:
            if text not in variants:
                variants[text] = mapping_of(text)
        except ValueError:
            _log.debug("durations of a variant that cannot be read are left out: %r", text)
            continue
        yield HistoryRow(
            case_id,
            variants[text],
            sums.n,
            sums.sum_log / sums.n,
            sums.sum_usd / sums.priced if sums.priced else None,
            sums.sum_tokens / sums.measured if sums.measured else None,
            sums.most_memory or None,
            sums.sum_cpu_s / sums.watched_s if sums.watched_s > 0.0 else None,
        )


_REMEMBERED = """
    SELECT case_id, variant, n, sum_log, priced, sum_usd, measured, sum_tokens,
           most_memory, watched_s, sum_cpu_s
    FROM history WHERE run_id = ?
"""

_DECIDED = """
    SELECT case_.id, variant.choices, attempt.duration_s, attempt.content
    FROM trial
    JOIN case_ ON case_.number = trial.case_
    JOIN variant ON variant.number = trial.variant
    JOIN result ON result.key = trial.key
    JOIN attempt ON attempt.key = result.key AND attempt.number = result.number
    WHERE result.outcome NOT IN (:infra, :refused, :skipped)
    ORDER BY trial.idx
"""
