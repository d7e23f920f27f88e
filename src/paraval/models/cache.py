"""Caches paid answers for reuse, in one SQLite file next to a store's runs.

An answer is available from memory as soon as it is put. A thread that writes anyway (the ledger's)
writes it to the file a little later, many in one transaction. Several engines may share the file.
Damaged rows are ignored; a file that is damaged, foreign or of another version is not used. The
client decides when to reuse an answer.

The file is bounded: the least recently used answers go first. Which day an answer was last used is
noted in a small table of its own, at most once a day, so that reads stay reads.

Most requests of a run are new, so which keys the file has is kept in memory: a query for each
would cost more than all the rest of the cache.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import field
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic_core import to_json

from paraval.dataclass import dataclass
from paraval.models.messages import message_words
from paraval.models.requests import NO_SETTINGS, Request, settings_words
from paraval.records import Message, Model

KEY_VERSION = 1
"""Version of the key's contents, and of how requests are built from them."""
APPLICATION_ID = 0x70766163  # "pvac"
FILE_VERSION = 1
LARGEST_BYTES = 2_000_000_000
"""Limit for all answers together, unless the suite has another."""
_FULL_AGAIN = 0.95
"""How full the file is after room was made, so that it is not made for every answer."""
_DAY_S = 86_400
READ_PATIENCE_S = 1.0
"""Wait for another engine's commit, which takes a millisecond. It blocks the event loop."""
WRITE_PATIENCE_S = 10.0
MOST_KEYS = 50_000
"""In memory: 5 MB, and 20 ms to read them. In a larger file, each key is looked up."""
LOOK_S = 0.25
"""How often the file is searched for new answers of other engines."""
FLUSH_S = 0.25
"""How long answers may wait to be written. A killed engine's results are in its store anyway."""
_ROWS_AT_ONCE = (50, 8, 1)
"""Each statement makes its thread wait for Python's lock; few sizes, so that they are prepared only
once."""

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
_USES = """
    BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS use (
        number INTEGER PRIMARY KEY, -- of the answer
        day INTEGER NOT NULL        -- when it was last used, in days since 1970
    );
    CREATE INDEX IF NOT EXISTS oldest ON use (day, number);
    INSERT OR IGNORE INTO use SELECT number, 0 FROM answer;
    CREATE TRIGGER IF NOT EXISTS came AFTER INSERT ON answer BEGIN
        INSERT OR REPLACE INTO use VALUES (new.number, strftime('%s', 'now') / 86400);
    END;
    CREATE TRIGGER IF NOT EXISTS went AFTER DELETE ON answer BEGIN
        DELETE FROM use WHERE number = old.number;
    END;
    COMMIT;
"""
"""Added later: earlier versions can still use the file, and their answers count as old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAnswer:
    """A stored answer, as it was when the model gave it."""

    text: str
    usage: Mapping[str, float] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float | None = None
    """How long the model took; None: unknown, as in caches of earlier versions."""


class RequestKeys:
    """Keys of requests: hashes of everything that determines an answer, and of nothing that names
    a key or a price. The account is included: some gateways route by it.

    What all requests of a model share is encoded once.
    """

    def __init__(self, identities: Mapping[str, str] = MappingProxyType({})) -> None:
        """`identities`: by model name, what replaces an address that means nothing: a loopback
        server gets a new port each time, but its scenario stays the same."""
        self._identities = identities
        self._shared: dict[str, tuple[Model, str, str]] = {}

    def key(self, request: Request) -> str:
        """The hash of a JSON object with sorted keys."""
        start, middle = self._of_model(request.model)
        messages = ",".join(map(_message_json, request.messages))
        settings = ""
        if request.settings != NO_SETTINGS and (words := settings_words(request.settings)):
            settings = f',"settings":{_canonical(words)}'
        whole = (
            f"{start}{_EMBEDS if request.embeds else ''}"
            f',"max_tokens":{_number(request.max_tokens)},"messages":[{messages}],{middle}'
            f',"repeat":{request.repeat}{settings},"temperature":{_number(request.temperature)}'
            f',"version":{KEY_VERSION}}}'
        )
        return blake2b(whole.encode("ascii"), digest_size=20).hexdigest()

    def _of_model(self, model: Model) -> tuple[str, str]:
        known = self._shared.get(model.name)
        if known is None or known[0] is not model:
            address = self._identities.get(model.name, model.base_url or model.scenario)
            start = _canonical({"account": model.account, "address": address})
            middle = {"model": model.model, "options": model.options, "provider": model.provider}
            known = self._shared[model.name] = (model, start[:-1], _canonical(middle)[1:-1])
        return known[1:]


def _number(value: float | None) -> str:
    return "null" if value is None else _canonical(value)


def _message_json(message: Message) -> str:
    if message.parts or message.tool_calls or message.result_of is not None:
        return _canonical(message_words(message))
    return f"[{_canonical(message.role)},{_canonical(message.content)}]"


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else repr(value)


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_plain).encode
_EMBEDS = ',"embeds":true'


class Cache:
    """The cached answers of a store, in one file. Never fails: if an answer cannot be kept or read,
    it is requested again, and `complaints` has the reason.

    One thread calls `get`, `put` and `forget`, which never write; another may call `flush` and
    `flush_sometimes`.
    """

    def __init__(self, path: Path, max_bytes: int = LARGEST_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        """Guards what is to be written, below."""
        self._used: set[int] = set()
        """The numbers of answers that were read."""
        self._changes: dict[str, CachedAnswer | None] = {}
        """Not written yet; None: to be deleted."""
        self._being_written: dict[str, CachedAnswer | None] = {}
        self._keys: set[bytes] | None = set()
        """What the file may have; None: too many to know."""
        self._newest = 0
        """The number of the last answer that was seen in the file."""
        self._look_again_at = 0.0
        self._flush_again_at = 0.0
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
            return self._read(key)
        except _FAULTS as error:
            self._turn_off(error)
        except (ValueError, KeyError, TypeError, RecursionError):
            pass  # Damaged: treat it as missing.
        return None

    @property
    def is_empty(self) -> bool:
        """Whether the file has no answers, so that none need be looked up."""
        try:
            reader = self._open_reader()
            return reader is None or not reader.execute("SELECT 1 FROM answer").fetchone()
        except _FAULTS:
            return False  # Whatever reads next reports it.

    def put(self, key: str, answer: CachedAnswer) -> None:
        self._change(key, answer)
        if self._keys is not None:
            self._keys.add(bytes.fromhex(key))

    def forget(self, key: str) -> None:
        self._change(key, None)

    def flush_sometimes(self) -> None:
        """Write pending changes unless that was done just now: large transactions cost less than
        many small ones."""
        if time.monotonic() >= self._flush_again_at:
            self.flush()

    def flush(self) -> None:
        """Write pending changes in one transaction."""
        with self._lock:
            if self._is_off or not (self._changes or self._used):
                return
            self._being_written, self._changes = self._changes, {}
            used, self._used = self._used, set()
        try:
            self._write(self._being_written, used)
        except _FAULTS as error:
            self._turn_off(error)
        with self._lock:
            self._being_written = {}
        self._flush_again_at = time.monotonic() + FLUSH_S

    def complaints(self) -> list[str]:
        """Messages for the user, each returned once."""
        messages, self._complaints = self._complaints, []
        return messages

    def close(self) -> None:
        self.flush()
        self._shrink()
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None

    def _shrink(self) -> None:
        """Return room to the disk if the limit was lowered; deleted answers only leave gaps."""
        with contextlib.suppress(*_FAULTS):
            if self._writer is not None and self._path.stat().st_size > 1.5 * self._max_bytes:
                self._writer.execute("VACUUM")

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

    def _open_reader(self) -> sqlite3.Connection | None:
        if self._reader is None and self._path.exists():
            self._reader = _connected(self._path, patience_s=READ_PATIENCE_S)
        return self._reader

    def _read(self, key: str) -> CachedAnswer | None:
        reader, name = self._open_reader(), bytes.fromhex(key)
        if reader is None or not self._may_have(name, reader):
            return None
        row = reader.execute("SELECT number, content FROM answer WHERE key = ?", (name,)).fetchone()
        if row is None:
            return None
        answer = _decoded(row[1], key)
        with self._lock:
            self._used.add(row[0])
        return answer

    def _may_have(self, key: bytes, reader: sqlite3.Connection) -> bool:
        if self._keys is None or key in self._keys:
            return True
        if time.monotonic() < self._look_again_at:
            return False
        # The first time, all keys: the index has them. Then only what came since.
        after = "WHERE number > ?" if self._newest else "WHERE ? = 0"
        rows = reader.execute(
            f"SELECT number, key FROM answer {after} LIMIT {MOST_KEYS}",  # noqa: S608 - all ours
            (self._newest,),
        ).fetchall()
        self._newest = max((number for number, _ in rows), default=self._newest)
        self._keys.update(found for _, found in rows)
        self._look_again_at = time.monotonic() + LOOK_S
        may_have = key in self._keys
        if len(self._keys) >= MOST_KEYS:
            self._keys, may_have = None, True
        return may_have

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = _connected(self._path, patience_s=WRITE_PATIENCE_S, create=True)
            if not self._writer.execute(
                "SELECT 1 FROM sqlite_master WHERE name = 'use'"
            ).fetchone():
                self._writer.executescript(_USES)
        return self._writer

    def _write(self, changes: Mapping[str, CachedAnswer | None], used: Set[int]) -> None:
        rows = [(bytes.fromhex(key), _encoded(key, answer)) for key, answer in changes.items()]
        gone = [(key,) for key, content in rows if content is None]
        kept = [row for row in rows if row[1] is not None]
        connection, today = self._open_writer(), int(time.time() // _DAY_S)
        numbers = json.dumps(sorted(used))
        is_old = f"SELECT 1 FROM use WHERE {_USED_BEFORE} LIMIT 1"  # noqa: S608 - all ours
        given = {"today": today, "numbers": numbers}
        is_noted = bool(used and connection.execute(is_old, given).fetchone())
        if not (rows or is_noted):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany("DELETE FROM answer WHERE key = ?", gone)
            _insert(connection, kept)
            if is_noted:
                note = f"UPDATE use SET day = :today WHERE {_USED_BEFORE}"  # noqa: S608 - all ours
                connection.execute(note, given)
            if kept:
                _make_room(connection, self._max_bytes)
            connection.execute("COMMIT")
        except sqlite3.Error:
            # A full disk has already caused a rollback, and then this raises; report the first
            # error.
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise


_USED_BEFORE = "day < :today AND number IN (SELECT value FROM json_each(:numbers))"


def _insert(connection: sqlite3.Connection, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
    done = 0
    for size in _ROWS_AT_ONCE:
        places = ", ".join(["(?, ?)"] * size)
        while len(rows) - done >= size:
            connection.execute(
                f"INSERT OR REPLACE INTO answer (key, content) VALUES {places}",  # noqa: S608 - all ours
                [value for row in rows[done : done + size] for value in row],
            )
            done += size


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
        # Else the trigger would not run for an answer that is replaced.
        connection.execute("PRAGMA recursive_triggers = ON")
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


def _make_room(connection: sqlite3.Connection, max_bytes: int) -> None:
    """If the file is full, delete the least recently used answers, the oldest first."""
    (taken,) = connection.execute(
        "SELECT (page_count - freelist_count) * page_size"
        " FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    ).fetchone()
    if taken <= max_bytes:
        return
    (answers,) = connection.execute("SELECT count(*) FROM use").fetchone()
    too_many = math.ceil(answers * (1 - _FULL_AGAIN * max_bytes / taken))
    connection.execute(
        "DELETE FROM answer WHERE number IN (SELECT number FROM use ORDER BY day, number LIMIT ?)",
        (too_many,),
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
    for encode in (to_json, _with_escapes):  # Only escapes can hold lone surrogates.
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            content = encode(body)
            return _check(content) + content
    return None


def _with_escapes(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode("ascii")


def _check(content: bytes) -> bytes:
    """Checksum of an answer. SQLite detects few changes inside a page, so one flipped bit would
    silently become another answer."""
    return blake2b(content, digest_size=_CHECK_BYTES).digest()


def _decoded(row: bytes, key: str) -> CachedAnswer:
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
