"""Opens a run's file for its one writer or any reader, and explains what is wrong with it.

The file is in WAL mode while an engine works on the run, and a single plain file, easy to copy,
once it has been closed.
"""

from __future__ import annotations

import errno
import shutil
import sqlite3
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic_core import ValidationError

from paraval.codec import in_words
from paraval.errors import StoreError
from paraval.store.schema import APPLICATION_ID, RUN_TABLES, SCHEMA_VERSION, foreign_name

RUN_FILE = "run.db"
BUSY_TIMEOUT_S = 30.0

LARGEST_VALUE_BYTES = 512 << 20
"""The largest value we write is the start of a race, which includes all patches."""
MOST_STEPS = 200_000_000
"""SQLite virtual-machine steps allowed per query: a few seconds. A million trials take a third of
it."""

Trace = Callable[[str], None]
"""Called with each SQL statement before it runs."""

RESUMABLE = "recorded results are safe, and the run can be resumed"
CLOSE_AND_RESUME = "close the program that has it open, then resume"
"""Hints for suites; pytest sessions replace them with their own."""
_KEEP = "nothing was changed; keep a copy of the folder, and start a new run"


class NoPlanError(StoreError):
    """A run whose engine was killed while creating it: nothing ran in it."""


def create_file(path: Path, trace: Trace | None) -> sqlite3.Connection:
    """Create a new, empty file for a writer."""
    connection = _connect(f"{path.as_uri()}?mode=rwc", trace)
    _ready_for_writing(connection)
    return connection


def open_for_writing(path: Path, trace: Trace | None) -> sqlite3.Connection:
    """Open an existing file for writing, after checking all of it without changing a byte."""
    _require_regular(path)
    try:
        connection = _connect(f"{path.as_uri()}?mode=rw", trace)
    except sqlite3.Error as error:
        raise explained(error, path) from error
    try:
        require_ours(connection, path)
        require_whole(connection, path)
        _ready_for_writing(connection)
    except sqlite3.Error as error:
        connection.close()
        raise explained(error, path) from error
    except StoreError:
        connection.close()
        raise
    return connection


def _connect(uri: str, trace: Trace | None) -> sqlite3.Connection:
    # The caller's thread creates the connection; from then on only the writer's thread uses it.
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S
    )
    _distrust(connection)
    connection.set_trace_callback(trace)
    return connection


def _distrust(connection: sqlite3.Connection) -> None:
    """Keep a file from an untrusted source from running code or exhausting memory."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE_BYTES)
    connection.execute("PRAGMA trusted_schema = OFF")


def _ready_for_writing(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    # FULL: paid results survive a power loss too, at the cost of a few milliseconds per commit.
    connection.execute("PRAGMA synchronous = FULL")
    if sys.platform == "darwin":
        # On macOS, fsync stops at the drive's own cache, which a power loss empties.
        connection.execute("PRAGMA fullfsync = 1")
        connection.execute("PRAGMA checkpoint_fullfsync = 1")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA wal_autocheckpoint = 1000")
    # 16 MB: keys arrive in random order, and with SQLite's 2 MB a large plan rewrites its pages
    # many times.
    connection.execute("PRAGMA cache_size = -16000")


def close_as_one_file(connection: sqlite3.Connection) -> None:
    """Close a writer's connection and leave a single plain file, unless a reader has it open."""
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA busy_timeout = 1000")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


class ReadingFile:
    """A read-only connection, plus the copy it reads if the folder itself cannot be used."""

    def __init__(self, path: Path, *, worked_on: bool) -> None:
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        try:
            with explaining(path):
                self.connection = self._open(path, worked_on=worked_on)
                require_ours(self.connection, path)
        except StoreError:
            self.close()
            raise

    def _open(self, path: Path, *, worked_on: bool) -> sqlite3.Connection:
        if not has_run(path.parent):
            raise StoreError(f"{path.parent} is not a run: it has no {RUN_FILE}")
        _require_regular(path)
        try:
            return _read_only(f"{path.as_uri()}?mode=ro")
        except sqlite3.OperationalError as error:
            if worked_on or error.sqlite_errorcode & 0xFF not in _READ_ONLY_FOLDER:
                raise
        if not _has_unfinished_writes(path):
            return _read_only(f"{path.as_uri()}?mode=ro&immutable=1")
        # `immutable` would ignore the dead engine's log. A copy can be recovered.
        return _read_only(f"{self._copied(path).as_uri()}?mode=rw")

    def _copied(self, path: Path) -> Path:
        try:
            self._copy = tempfile.TemporaryDirectory(
                prefix="paraval-read-", ignore_cleanup_errors=True
            )
            for file in _with_logs(path):
                if file.exists():
                    shutil.copy(file, self._copy.name)
        except OSError as error:
            raise StoreError(
                f"{path} can only be read from a copy, which cannot be created: {error}",
                hint="free some disk space, or point TMPDIR to a disk that has some",
            ) from error
        return Path(self._copy.name) / path.name

    def close(self) -> None:
        if (connection := getattr(self, "connection", None)) is not None:
            connection.close()
        if self._copy is not None:
            self._copy.cleanup()


_READ_ONLY_FOLDER = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


def _read_only(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S
    )
    try:
        # Pages of a damaged file can point back to each other; then a query would never end.
        connection.set_progress_handler(lambda: True, MOST_STEPS)
        _distrust(connection)
        connection.execute("PRAGMA query_only = 1")
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def has_run(folder: Path) -> bool:
    """Whether the folder contains a run's file; StoreError if it may not be read."""
    path = folder / RUN_FILE
    try:
        return not stat.S_ISDIR(path.lstat().st_mode)
    except ValueError:
        return False
    except OSError as error:
        if error.errno in _NOT_THERE:
            return False
        raise explained(error, path) from error


_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


def _has_unfinished_writes(path: Path) -> bool:
    return any(
        log.exists() and log.stat().st_size > 0
        for log in (path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-journal"))
    )


def _with_logs(path: Path) -> list[Path]:
    """The file and the ones SQLite may keep beside it."""
    return [path.with_name(f"{path.name}{ending}") for ending in ("", "-journal", "-wal", "-shm")]


def _require_regular(path: Path) -> None:
    """StoreError if the file is a pipe, where SQLite would block, or a link to another file."""
    for file in _with_logs(path):
        try:
            mode = file.lstat().st_mode
        except FileNotFoundError:
            continue
        except OSError as error:
            raise explained(error, file) from error
        if not stat.S_ISREG(mode):
            raise StoreError(f"{file} is not a regular file", hint="it was not opened")


def fingerprint(path: Path) -> str | None:
    """A value that changes whenever the file does; None while its log may hold newer data."""
    try:
        if _has_unfinished_writes(path):
            return None
        status = path.stat()
    except OSError:
        return None
    return f"{status.st_size}:{status.st_mtime_ns}"


def require_ours(connection: sqlite3.Connection, path: Path) -> None:
    """StoreError unless this is a run's file of a version that we know."""
    application = _pragma(connection, "application_id")
    version = _pragma(connection, "user_version")
    if application == 0 and connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
        raise NoPlanError(
            f"{path} has no plan: its engine ended while creating it",
            hint="nothing ran in it; start a new run",
        )
    if application != APPLICATION_ID:
        raise StoreError(f"{path} was not created by paraval", hint="it was left unchanged")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was created by a newer paraval (format {version}; this one knows "
            f"{SCHEMA_VERSION})",
            hint="upgrade paraval; the file was left unchanged",
        )
    if (name := foreign_name(connection, RUN_TABLES)) is not None:
        raise StoreError(
            f"{path} has tables that paraval does not create: {name[:100]!r}",
            hint="the file may be meant to mislead its readers; it was left unchanged",
        )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def require_whole(connection: sqlite3.Connection, path: Path) -> None:
    """StoreError if pages or indexes are damaged. Takes 2% of the time of a report."""
    first = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if first != "ok":
        raise StoreError(f"{path} is damaged: {first}", hint=_KEEP)


@contextmanager
def explaining(path: Path, record: str | None = None) -> Iterator[None]:
    """While reading: turn any problem with the file into a StoreError that names the file and the
    record being read."""
    try:
        yield
    except FAULTS as error:
        raise explained(error, path, record) from error


FAULTS = (
    *(sqlite3.Error, OSError, TypeError, ValueError),
    *(AttributeError, LookupError, ArithmeticError, RecursionError, AssertionError),
)
"""Errors that reading can raise. SQLite notices few alterations inside a page: a value may be
missing, invalid JSON, an unknown word, or inconsistent with the others."""


def explained(error: Exception, path: Path, record: str | None = None) -> StoreError:
    """A message for people about what went wrong."""
    if isinstance(error, sqlite3.Error):
        return _explained_sqlite(error, path)
    if isinstance(error, OSError):
        return _explained_system(error, path)
    what = "its record" if record is None else f"its record of {record}"
    return StoreError(
        f"run {path.parent.name}: {what} is damaged: {_why(error)} ({path})",
        hint=f"or it was created by another version of paraval; {_KEEP}",
    )


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return in_words(error)
    return str(error) if isinstance(error, ValueError) else repr(error)


def _explained_system(error: OSError, path: Path) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _no_space(path)
    return StoreError(
        f"{path} cannot be used: {error.strerror or error}",
        hint="check the disk and the folder's permissions",
    )


def _no_space(path: Path) -> StoreError:
    return StoreError(
        f"no space left for results in {path.parent}",
        hint=f"make space; {RESUMABLE}",
    )


def _explained_sqlite(error: sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError(f"{path} is damaged: {error}", hint=_KEEP)
    if code == sqlite3.SQLITE_FULL:
        return _no_space(path)
    if code == sqlite3.SQLITE_INTERRUPT:
        return StoreError(f"{path} takes too long to read: it may be damaged", hint=_KEEP)
    if code == sqlite3.SQLITE_TOOBIG:
        return StoreError(f"{path} has a value of more than 512 MiB: it may be damaged", hint=_KEEP)
    if code in _READ_ONLY_FOLDER:
        return StoreError(
            f"{path} cannot be opened: {error}", hint="does its folder exist, and is it writable?"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(f"{path} is locked by another program", hint=CLOSE_AND_RESUME)
    return StoreError(
        f"{path} cannot be written or read: {error} ({getattr(error, 'sqlite_errorname', '?')})",
        hint=f"check the disk; {RESUMABLE}",
    )
