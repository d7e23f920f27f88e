"""Answers that were paid for, kept to be used again: one SQLite file beside the runs of a store.

An answer that was put is there at once, from memory; a thread that writes anyway (the ledger's)
writes it a little later, many in one transaction. Several engines may share the file. A row that is
damaged is as good as none, and a file that is damaged, foreign or of another version is not used.
When to use an answer again is the client's decision.
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

from paraval.models.requests import Request

KEY_VERSION = 1
"""Of what a key is made from, and of how requests are built from it."""
APPLICATION_ID = 0x70766163  # "pvac"
FILE_VERSION = 1
LARGEST_BYTES = 1 << 30
"""Of all answers together; beyond that, the oldest go."""
READ_PATIENCE_S = 1.0
"""For another engine's commit, which takes a millisecond; the event loop waits meanwhile."""
WRITE_PATIENCE_S = 10.0

_FAULTS = (sqlite3.Error, OSError, UnicodeDecodeError)
"""Of the file. sqlite3 cannot even decode its complaint where a table's definition is damaged."""
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
    """An answer as it was when it was asked for."""

    text: str
    usage: Mapping[str, float] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def request_key(request: Request, *, identity: str | None = None) -> str:
    """A hash of all that decides the answer; of nothing that names a key or a price.

    The account is part of it: some gateways choose by it who answers.

    `identity` stands for the address where that says nothing: a loopback server's port is another
    one each time, but its scenario is the same.
    """
    model = request.model
    decides = {
        "version": KEY_VERSION,
        "provider": model.provider,
        "address": model.base_url or model.scenario if identity is None else identity,
        "account": model.account,
        "model": model.model,
        "options": model.options,
        "messages": [(message.role, message.content) for message in request.messages],
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
        "repeat": request.repeat,
    }
    canonical = json.dumps(decides, sort_keys=True, separators=(",", ":"), default=_plain)
    return blake2b(canonical.encode("ascii"), digest_size=20).hexdigest()


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else repr(value)


class Cache:
    """The answers of a store, in one file. It never fails: what cannot be kept or read is asked for
    again, and `complaints` says why.

    One thread asks (`get`, `put`, `forget`), which costs it no write; another may `flush`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        """Guards the two mappings below."""
        self._changes: dict[str, CachedAnswer | None] = {}
        """Not written yet; None: to be forgotten."""
        self._being_written: dict[str, CachedAnswer | None] = {}
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._is_off = False
        self._complaints: list[str] = []

    def prepare(self) -> None:
        """Make the file where there is none, so that it is known before a run whether it can be."""
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
            pass  # Damaged: as good as none.
        return None

    def put(self, key: str, answer: CachedAnswer) -> None:
        self._change(key, answer)

    def forget(self, key: str) -> None:
        self._change(key, None)

    def flush(self) -> None:
        """Write what was put and forgotten, in one transaction."""
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
        """What a person should know, each once."""
        told, self._complaints = self._complaints, []
        return told

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
            # A full disk has rolled back already, and then this raises; the first error counts.
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise


def _connected(path: Path, *, patience_s: float, create: bool = False) -> sqlite3.Connection:
    # Nothing there may hold the run up, as a pipe without a writer would.
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
        # two do so at once. Nothing is synced: what a power cut takes is asked for again.
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = OFF")
        _require_ours(connection)
    except _FAULTS:
        connection.close()
        raise
    return connection


def _require_ours(connection: sqlite3.Connection) -> None:
    marks = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _MARKS]
    if marks == [0, 0] and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        connection.executescript(_SCHEMA)
    elif marks[0] != APPLICATION_ID:
        raise sqlite3.DatabaseError("it was not created by paraval")
    elif marks[1] != FILE_VERSION:
        raise sqlite3.DatabaseError("it was created by another version of paraval; delete it")


def _make_room(connection: sqlite3.Connection, *, replaced: int) -> None:
    """Where the file is full, the oldest answers go: twice as many as have come."""
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
    """None where there is nothing to keep, or nothing that can be."""
    if answer is None:
        return None
    body = {
        "key": key,
        "text": answer.text,
        "usage": None if answer.usage is None else dict(answer.usage),
        "metadata": dict(answer.metadata),
        "notes": answer.notes,
    }
    try:
        content = json.dumps(body, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError):
        return None
    return _check(content) + content


def _check(content: bytes) -> bytes:
    """SQLite notices little of what is altered inside a page, and one flipped bit in an answer
    would else be an answer too."""
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
    )
