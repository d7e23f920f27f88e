"""Caches paid answers for reuse, in one SQLite file next to a store's runs.

An answer is available from memory as soon as it is put. A thread that writes anyway (the ledger's)
writes it to the file a little later, many in one transaction. Several engines may share the file.
Damaged rows are ignored; a file that is damaged, foreign or of another version is not used. The
client decides when to reuse an answer.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from paraval.models.messages import message_words
from paraval.models.requests import Request, settings_words

KEY_VERSION = 1
"""Version of the key's contents, and of how requests are built from them."""
APPLICATION_ID = 0x70766163  # "pvac"
FILE_VERSION = 1
LARGEST_BYTES = 1 << 30
"""Limit for all answers together; beyond it, the oldest are deleted."""
READ_PATIENCE_S = 1.0
"""Wait for another engine's commit, which takes a millisecond. It blocks the event loop."""
WRITE_PATIENCE_S = 10.0

_FAULTS = (sqlite3.Error, OSError, UnicodeDecodeError)
"""Faults of the file. If a table's definition is damaged, sqlite3 cannot even decode its own error
message."""
_CHECK_BYTES = 16
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_MARKS = ("application_id", "user_version")
_SCHEMA = f"""
    BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS answer (
        number INTEGER PRIMARY KEY, -- in the order in which they came
        key BLOB NOT NULL UNIQUE,   -- of the request
        content BLOB NOT NULL       -- a hash of what follows, then JSON
    );
    PRAGMA application_id = {APPLICATION_ID};
    PRAGMA user_version = {FILE_VERSION};
    COMMIT;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAnswer:
    """A stored answer, as it was when the model gave it."""

    text: str
    usage: Mapping[str, float] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float | None = None
    """How long the model took; None: unknown, as in caches of earlier versions."""


def request_key(request: Request, *, identity: str | None = None) -> str:
    """Hash everything that determines the answer, and nothing that names a key or a price.

    The account is included: some gateways route by it.

    `identity` replaces an address that means nothing: a loopback server gets a new port each time,
    but its scenario stays the same.
    """
    model = request.model
    decides: dict[str, Any] = {
        "version": KEY_VERSION,
        "provider": model.provider,
        "address": model.base_url or model.scenario if identity is None else identity,
        "account": model.account,
        "model": model.model,
        "options": model.options,
        "messages": [message_words(message) for message in request.messages],
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
        "repeat": request.repeat,
    }
    if request.embeds:
        decides["embeds"] = True
    if settings := settings_words(request.settings):
        decides["settings"] = settings
    canonical = json.dumps(decides, sort_keys=True, separators=(",", ":"), default=_plain)
    return blake2b(canonical.encode("ascii"), digest_size=20).hexdigest()


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else repr(value)


class Cache:
    """The cached answers of a store, in one file. Never fails: if an answer cannot be kept or read,
    it is requested again, and `complaints` has the reason.

    One thread calls `get`, `put` and `forget`, which never write; another may call `flush`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        """Guards the two mappings below."""
        self._changes: dict[str, CachedAnswer | None] = {}
        """Not written yet; None: to be deleted."""
        self._being_written: dict[str, CachedAnswer | None] = {}
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._is_off = False
        self._complaints: list[str] = []

    def prepare(self) -> None:
        """Create the file if missing, so that problems show up before the run."""
        old = self._path.with_suffix("")
        if old.is_dir():
            self._complaints.append(
                f"{old} holds answers of an earlier version, which are no longer used; delete it."
            )
        try:
            self._open_writer()
        except _FAULTS as error:
            self._turn_off(error)

    def get(self, key: str) -> CachedAnswer | None:
        if self._is_off:
            return None
        with self._lock:
            for held in (self._changes, self._being_written):
                if key in held:
                    return held[key]
        try:
            return _decoded(self._content(key), key)
        except _FAULTS as error:
            self._turn_off(error)
        except (ValueError, KeyError, TypeError, RecursionError):
            pass  # Damaged: treat it as missing.
        return None

    def put(self, key: str, answer: CachedAnswer) -> None:
        self._change(key, answer)

    def forget(self, key: str) -> None:
        self._change(key, None)

    def flush(self) -> None:
        """Write pending changes in one transaction."""
        with self._lock:
            if not self._changes or self._is_off:
                return
            self._being_written, self._changes = self._changes, {}
        try:
            self._write(self._being_written)
        except _FAULTS as error:
            self._turn_off(error)
        with self._lock:
            self._being_written = {}

    def complaints(self) -> list[str]:
        """Messages for the user, each returned once."""
        messages, self._complaints = self._complaints, []
        return messages

    def close(self) -> None:
        self.flush()
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None

    def _change(self, key: str, answer: CachedAnswer | None) -> None:
        if not self._is_off:
            with self._lock:
                self._changes[key] = answer

    def _turn_off(self, error: Exception) -> None:
        if self._is_off:
            return
        self._is_off = True
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        damaged = isinstance(error, UnicodeDecodeError) or code in _DAMAGED
        why = "it is damaged; delete it" if damaged else error
        self._complaints.append(
            f"The cache of answers cannot be used ({self._path}): {why}. The run continues "
            "without it, and equal requests are paid for again."
        )

    def _content(self, key: str) -> bytes | None:
        if self._reader is None:
            if not self._path.exists():
                return None
            self._reader = _connected(self._path, patience_s=READ_PATIENCE_S)
        row = self._reader.execute(
            "SELECT content FROM answer WHERE key = ?", (bytes.fromhex(key),)
        ).fetchone()
        return None if row is None else row[0]

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = _connected(self._path, patience_s=WRITE_PATIENCE_S, create=True)
        return self._writer

    def _write(self, changes: Mapping[str, CachedAnswer | None]) -> None:
        rows = [(bytes.fromhex(key), _encoded(key, answer)) for key, answer in changes.items()]
        forgotten = [(key,) for key, content in rows if content is None]
        kept = [(key, content) for key, content in rows if content is not None]
        connection = self._open_writer()
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany("DELETE FROM answer WHERE key = ?", forgotten)
            connection.executemany(
                "INSERT OR REPLACE INTO answer (key, content) VALUES (?, ?)", kept
            )
            _make_room(connection, replaced=len(kept))
            connection.execute("COMMIT")
        except sqlite3.Error:
            # A full disk has already caused a rollback, and then this raises; report the first
            # error.
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise


def _connected(path: Path, *, patience_s: float, create: bool = False) -> sqlite3.Connection:
    # A special file must not block the run, as a pipe without a writer would.
    if path.exists() and not path.is_file():
        raise sqlite3.DatabaseError("it is not a file")
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=patience_s,
    )
    try:
        # Not WAL: several engines write here, and SQLite before 3.51.3 may damage a WAL file when
        # two write at the same time. Nothing is synced: answers lost in a power cut are requested
        # again.
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = OFF")
        _require_ours(connection)
    except _FAULTS:
        connection.close()
        raise
    return connection


def _require_ours(connection: sqlite3.Connection) -> None:
    # In one transaction: another engine may be creating the file.
    connection.execute("BEGIN")
    marks = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _MARKS]
    is_new = not connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    connection.execute("COMMIT")
    if marks == [0, 0] and is_new:
        connection.executescript(_SCHEMA)
    elif marks[0] != APPLICATION_ID:
        raise sqlite3.DatabaseError("it was not created by paraval")
    elif marks[1] != FILE_VERSION:
        raise sqlite3.DatabaseError("it was created by another version of paraval; delete it")


def _make_room(connection: sqlite3.Connection, *, replaced: int) -> None:
    """If the file is full, delete the oldest answers, twice as many as were added."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    if (pages - free) * size > LARGEST_BYTES:
        connection.execute(
            "DELETE FROM answer WHERE number IN"
            " (SELECT number FROM answer ORDER BY number LIMIT ?)",
            (2 * replaced,),
        )


def _encoded(key: str, answer: CachedAnswer | None) -> bytes | None:
    """The stored form; None if there is nothing to keep, or it cannot be encoded."""
    if answer is None:
        return None
    body = {
        "key": key,
        "text": answer.text,
        "usage": None if answer.usage is None else dict(answer.usage),
        "metadata": dict(answer.metadata),
        "notes": answer.notes,
        "seconds": answer.seconds,
    }
    try:
        content = json.dumps(body, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError):
        return None
    return _check(content) + content


def _check(content: bytes) -> bytes:
    """Checksum of an answer. SQLite detects few changes inside a page, so one flipped bit would
    silently become another answer."""
    return blake2b(content, digest_size=_CHECK_BYTES).digest()


def _decoded(row: bytes | None, key: str) -> CachedAnswer | None:
    if row is None:
        return None
    check, content = row[:_CHECK_BYTES], row[_CHECK_BYTES:]
    if check != _check(content):
        raise ValueError("damaged")
    body = json.loads(content)
    if body["key"] != key:
        raise ValueError("under another name")
    return CachedAnswer(
        text=body["text"],
        usage=body["usage"],
        metadata=body["metadata"],
        notes=tuple(body["notes"]),
        seconds=body.get("seconds"),
    )
