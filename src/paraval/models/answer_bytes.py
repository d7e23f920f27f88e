"""The bytes of one answer, read as they come: events of a stream, or JSON in one piece.

The form is seen from the bytes, not from the headers: servers answer a streaming call with plain
JSON, and the other way round. What is kept is bounded, whatever a server sends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Any, NoReturn, cast

from pydantic_core import from_json

from paraval.models.protocols import Adapter
from paraval.models.reading import (
    PageError,
    Reading,
    TooLongError,
    TruncatedError,
    UnreadableError,
    kind_of,
)
from paraval.models.server_events import EventBytes
from paraval.settings import ANSWER_LIMIT_BYTES
from paraval.strict_json import DECODER, DuplicateKeyError

PIECE_LIMIT_BYTES = 8 * ANSWER_LIMIT_BYTES
"""Of one event, or of an answer in one piece: escapes and wrapping around the longest answer."""
STREAM_LIMIT_BYTES = 128 * ANSWER_LIMIT_BYTES
"""Of a whole stream: an event for every few characters, each with its wrapping."""
PAGE_LIMIT_BYTES = 64 * 1024
END = "[DONE]"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
"""For events. A doubled key in one changes nothing here, and to look for it would cost as much as
all the rest of the reading."""


class _Form(Enum):
    STREAM = auto()
    PIECE = auto()
    PAGE = auto()


class AnswerBytes:
    """Collects the bytes of one answer, and reads them."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._reader = adapter.reader()
        self._bytes = EventBytes()
        self._size = 0
        self._form: _Form | None = None
        """None: nothing but white space came yet."""
        self._events = 0

    @property
    def done(self) -> bool:
        """A stream has told its end."""
        return self._reader.done

    @property
    def has_text(self) -> bool:
        """Some of the answer came: the provider has worked on it."""
        return self._reader.size > 0

    def feed(self, chunk: bytes) -> None:
        self._bytes.feed(chunk)
        self._size += len(chunk)
        if self._form is None:
            self._form = _form(self._bytes.begin())
        if self._form is _Form.STREAM:
            self._feed_stream()
        elif self._form is _Form.PAGE and self._size > PAGE_LIMIT_BYTES:
            raise PageError(self._text())
        elif self._size > PIECE_LIMIT_BYTES:
            raise TooLongError

    def finish(self) -> Reading:
        if self._form is _Form.PAGE:
            raise PageError(self._text())
        if self._form is _Form.PIECE:
            return self._adapter.read(_parsed(bytes(self._bytes)))
        if not self.done:
            self._take_rest()
        return self._reader.finish()

    def _feed_stream(self) -> None:
        if payloads := self._complete():
            self._take(payloads)
        too_long = self._reader.size > ANSWER_LIMIT_BYTES or len(self._bytes) > PIECE_LIMIT_BYTES
        if too_long or self._size > STREAM_LIMIT_BYTES:
            raise TooLongError

    def _complete(self) -> list[str]:
        try:
            return self._bytes.take()
        except UnicodeDecodeError:
            raise UnreadableError("it is not UTF-8") from None

    def _take(self, payloads: list[str]) -> None:
        reader = self._reader
        self._events += len(payloads)
        ends = END in payloads
        if ends:
            del payloads[payloads.index(END) :]
        for event in _events(payloads):
            if reader.done:
                return
            reader.take(event)
        if ends:
            reader.take_end()

    def _take_rest(self) -> None:
        """A last event without its blank line; one that is cut in its middle is a broken stream."""
        said = self._text()
        try:
            self._take(self._bytes.take_rest())
        except (ValueError, UnreadableError):
            raise TruncatedError from None
        if not self._events and said.strip():
            raise UnreadableError("neither JSON nor events", said=said)

    def _text(self) -> str:
        """As far as anyone would read it."""
        return bytes(self._bytes)[:PAGE_LIMIT_BYTES].decode(errors="replace")


def _form(first: bytes) -> _Form | None:
    match first:
        case b"":
            return None
        case b"{" | b"[":
            return _Form.PIECE
        case b"<":
            return _Form.PAGE
    return _Form.STREAM


def _events(payloads: list[str]) -> Iterable[Mapping[str, Any]]:
    """All in one go, which costs half, and by a parser that costs half again but knows no halves of
    characters; one by one where that does not come out even, so that those before the wrong one are
    heard."""
    try:
        events = from_json(f"[{','.join(payloads)}]", allow_inf_nan=False)
    except ValueError:
        return map(_event, payloads)
    if len(events) == len(payloads) and all(type(event) is dict for event in events):
        return cast("list[dict[str, Any]]", events)
    return map(_event, payloads)


def _event(payload: str) -> Mapping[str, Any]:
    try:
        event = _decode(payload)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"an event is not JSON: {_why(error)}") from None
    if not isinstance(event, dict):
        raise UnreadableError(f"an event is {kind_of(event)}, not an object")
    return event


def _parsed(data: bytes) -> Mapping[str, Any]:
    try:
        whole = DECODER.decode(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"it is not JSON: {_why(error)}") from None
    if not isinstance(whole, dict):
        raise UnreadableError(f"it is {kind_of(whole)}, not an object")
    return whole


def _why(error: Exception) -> str:
    """Without a piece of the text itself, which may be a piece of a key."""
    match error:
        case json.JSONDecodeError():
            return f"{error.msg} at line {error.lineno}, column {error.colno}"
        case UnicodeDecodeError():
            return "not UTF-8"
        case DuplicateKeyError():
            return "a key in it is there twice"
        case RecursionError():
            return "nested too deeply"
    return "a number in it is none"
