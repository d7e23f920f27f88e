"""What attempts sent and got back, in the store: compressed, bounded, and no long text many times.

A prompt's system text, a rubric and a long question are the same in many attempts: from the second
time on, they are rows of their own, which exchanges refer to. Exchanges are read one attempt at a
time, when someone looks.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from paraval.codec import Style, from_data, record_encoder
from paraval.records import Exchange
from paraval.store.encoding import data_to_json, to_json
from paraval.store.schema import EXCHANGE_SCHEMA, statements_of
from paraval.text.terminal import well_formed

SHARED_FROM = 200
"""Characters; a shorter text takes no more space than a reference with its row."""
LONGEST_TEXT = 200_000
"""Characters; a longer text loses its middle."""
MOST_KNOWN_TEXTS = 100_000
"""How many texts are remembered; others are written each time they are sent."""
MOST_CHARACTERS = 4_000_000
"""Of one attempt's texts; those that would exceed it are left out."""
DEFLATED_FROM = 1000
"""Bytes; deflating less takes more time than it saves space."""
_REFERENCE = "\0"
_LARGEST_BYTES = 1 << 26
"""A stored content that inflates to more was not written here."""

Stored = str | bytes


class KnownTexts:
    """The long texts that a run has sent before."""

    def __init__(self) -> None:
        self.written: set[str] = set()
        """Digests of texts that have a row of their own."""
        self._seen: set[int] = set()

    def is_repeated(self, text: str) -> bool:
        """Whether it was sent before: most texts are sent only once, and need no row."""
        number = hash(text)
        if number not in self._seen and len(self._seen) < MOST_KNOWN_TEXTS:
            self._seen.add(number)
            return False
        return number in self._seen


class ExchangeRows:
    """The rows of one transaction; texts that were written before are left out."""

    def __init__(self, known: KnownTexts) -> None:
        self.exchanges: list[tuple[str, int, Stored]] = []
        self.texts: dict[str, Stored] = {}
        self._known = known

    def add(self, key: str, number: int, exchanges: Iterable[Exchange]) -> None:
        size = 0

        def shared(value: Any) -> Any:
            nonlocal size
            if isinstance(value, str):
                size += len(value)
                if len(value) >= SHARED_FROM:
                    value = _cut(value, size)
                    if self._known.is_repeated(value):
                        return self._reference(value)
                return _REFERENCE + value if value.startswith(_REFERENCE) else value
            if isinstance(value, (list, tuple)):
                return [shared(one) for one in value]
            if type(value) is dict or isinstance(value, Mapping):
                return {shared(name): shared(one) for name, one in value.items()}
            return value

        encode = record_encoder(Exchange, Style.STORED)
        data = [encode(one) for one in exchanges]
        try:
            stored = shared(data)
        except RecursionError:
            # Nested too deep, which JSON of the store never is.
            stored = shared(json.loads(to_json(data)))
        self.exchanges.append((key, number, _deflated(data_to_json(stored))))

    def _reference(self, text: str) -> str:
        text = well_formed(text)
        digest = blake2b(text.encode(), digest_size=16).hexdigest()
        if digest not in self._known.written and digest not in self.texts:
            self.texts[digest] = _deflated(text)
        return _REFERENCE + digest


def create_tables(connection: sqlite3.Connection) -> None:
    """For a new run, or one of an earlier version; within the caller's transaction."""
    if not _has_tables(connection):
        for statement in statements_of(EXCHANGE_SCHEMA):
            connection.execute(statement)


def read_exchanges(
    connection: sqlite3.Connection, index: int, number: int | None
) -> tuple[Exchange, ...]:
    """Of the trial's attempt with this number; None: the attempt that decided it."""
    if not _has_tables(connection):
        return ()
    row = connection.execute(_EXCHANGE, {"index": index, "number": number}).fetchone()
    if row is None:
        return ()

    def whole(value: Any) -> Any:
        if isinstance(value, str):
            if not value.startswith(_REFERENCE):
                return value
            if value.startswith(_REFERENCE * 2):
                return value[1:]
            found = connection.execute(_TEXT, (value[1:],)).fetchone()
            return "[missing]" if found is None else _inflated(found[0])
        if isinstance(value, dict):
            return {whole(name): whole(one) for name, one in value.items()}
        if isinstance(value, list):
            return [whole(one) for one in value]
        return value

    data: Sequence[Any] = json.loads(_inflated(row[0]))
    return tuple(from_data(Exchange, whole(one)) for one in data)


def _has_tables(connection: sqlite3.Connection) -> bool:
    sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'exchange'"
    return connection.execute(sql).fetchone() is not None


def _cut(text: str, size: int) -> str:
    """`size`: the characters of the attempt's texts so far, this one included."""
    if size > MOST_CHARACTERS:
        return f"[{len(text):,} characters are left out here]"
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]} [... {len(text) - 2 * half:,} characters ...] {text[-half:]}"


def _deflated(text: str) -> Stored:
    data = text.encode()
    return text if len(data) < DEFLATED_FROM else zlib.compress(data, 1)


def _inflated(content: Any) -> str:
    if isinstance(content, str):
        return content
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(content, _LARGEST_BYTES)
    except zlib.error as error:
        raise ValueError(f"a text cannot be inflated: {error}") from error
    if inflater.unconsumed_tail:
        raise ValueError("a text is larger than any that is stored")
    return data.decode()


_EXCHANGE = """
    SELECT exchange.content FROM trial JOIN exchange USING (key)
    WHERE trial.idx = :index AND exchange.number = coalesce(
        :number, (SELECT number FROM result WHERE result.key = trial.key)
    )
"""

_TEXT = "SELECT content FROM long_text WHERE digest = ?"
