"""Reads the bytes of one answer as they come: server-sent events, or one JSON document.

The format is detected from the bytes, not the headers: servers answer a streaming call with plain
JSON, and vice versa. Memory is bounded, whatever a server sends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Any, NoReturn, cast

from pydantic_core import from_json

from paraval.documents.json import DECODER, DuplicateKeyError
from paraval.models.endpoints import Adapter
from paraval.models.response_reader import (
    AnswerReading,
    PageError,
    TooLongError,
    TruncatedError,
    UnreadableError,
    kind_of,
)
from paraval.settings import ANSWER_LIMIT_BYTES

# Server-sent events: the data of each event, from the bytes of a stream.


class EventBytes:
    """Splits the bytes of a stream at the blank lines between events."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._looked_at = 0
        """How much of the rest contains no end of an event."""
        self._after_cr = False

    def __len__(self) -> int:
        return len(self._rest)

    def __bytes__(self) -> bytes:
        return bytes(self._rest)

    def begin(self) -> bytes:
        """The first bytes that are not white space."""
        self._rest = self._rest.removeprefix(b"\xef\xbb\xbf").lstrip()
        return bytes(self._rest[:1])

    def feed(self, chunk: bytes) -> None:
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_plain_lines(chunk)
        self._rest += chunk

    def take(self) -> bytes:
        """All complete events; the others stay for later."""
        rest = self._rest
        # Search only the new bytes: an event of many lines is not searched again for each of them.
        end = rest.rfind(b"\n\n", max(0, self._looked_at - 1)) + 2
        if end < 2:
            self._looked_at = len(rest)
            return b""
        if end == len(rest):
            return self.take_rest()
        events = bytes(rest[:end])
        del rest[:end]
        self._looked_at = len(rest)
        return events

    def take_rest(self) -> bytes:
        """All that is left; the last event at the end of a stream often lacks its blank line."""
        events = bytes(self._rest)
        self._rest.clear()
        self._looked_at = 0
        return events

    def _with_plain_lines(self, chunk: bytes) -> bytes:
        """A CR ends a line right away, and an LF after it, even in the next chunk, belongs to the
        same line end: waiting for it would block forever if the stream stays open."""
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _payload(block: str) -> str:
    lines = [line[5:] for line in block.split("\n") if line.startswith("data:")]
    return "\n".join(line.removeprefix(" ") for line in lines)


PIECE_LIMIT_BYTES = 8 * ANSWER_LIMIT_BYTES
"""For one event, or an answer in one piece: escapes and wrapping around the longest answer."""
STREAM_LIMIT_BYTES = 128 * ANSWER_LIMIT_BYTES
"""For a whole stream: an event for every few characters, each with its wrapping."""
PAGE_LIMIT_BYTES = 64 * 1024
END = "[DONE]"
_DATA = b"data: "
_TEXT = b'"content":"'
_BETWEEN = b"\n\n" + _DATA
_LAST_LINE = END.encode() + b"\n\n"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
"""For events. A duplicate key in one changes nothing here, and looking for it would cost as much as
all the rest of the reading."""


class _BodyKind(Enum):
    STREAM = auto()
    PIECE = auto()
    PAGE = auto()


class AnswerBytes:
    """Collects and reads the bytes of one answer."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._reader = adapter.reader()
        self._bytes = EventBytes()
        self._size = 0
        self._form: _BodyKind | None = None
        """None: only white space came so far."""
        self._has_events = False

    @property
    def done(self) -> bool:
        """Whether a stream has reached its end."""
        return self._reader.done

    @property
    def has_text(self) -> bool:
        """Whether some of the answer came: the provider has worked on it."""
        return self._reader.size > 0

    def feed(self, chunk: bytes) -> None:
        self._bytes.feed(chunk)
        self._size += len(chunk)
        if self._form is None:
            self._form = _form(self._bytes.begin())
        if self._form is _BodyKind.STREAM:
            self._feed_stream()
        elif self._form is _BodyKind.PAGE and self._size > PAGE_LIMIT_BYTES:
            raise PageError(self._text())
        elif self._size > PIECE_LIMIT_BYTES:
            raise TooLongError

    def finish(self) -> AnswerReading:
        if self._form is _BodyKind.PAGE:
            raise PageError(self._text())
        if self._form is _BodyKind.PIECE:
            return self._adapter.read(_parsed(bytes(self._bytes)))
        if not self.done:
            self._take_rest()
        return self._reader.finish()

    def _feed_stream(self) -> None:
        if events := self._bytes.take():
            self._take(events)
        too_long = self._reader.size > ANSWER_LIMIT_BYTES or len(self._bytes) > PIECE_LIMIT_BYTES
        if too_long or self._size > STREAM_LIMIT_BYTES:
            raise TooLongError

    def _take(self, data: bytes) -> None:
        reader = self._reader
        events, ends = _one_line_events(data) or _any_events(data)
        self._has_events = self._has_events or bool(events) or ends
        for event in events:
            if reader.done:
                return
            reader.take(event)
        if ends:
            reader.take_end()

    def _take_rest(self) -> None:
        """Read a last event without its blank line; one that is cut in the middle is a broken
        stream."""
        text = self._text()
        try:
            self._take(self._bytes.take_rest())
        except (ValueError, UnreadableError):
            raise TruncatedError from None
        if not self._has_events and text.strip():
            raise UnreadableError("neither JSON nor events", quote=text)

    def _text(self) -> str:
        """The start of the text, as much as anyone would read."""
        return bytes(self._bytes)[:PAGE_LIMIT_BYTES].decode(errors="replace")


def _form(first: bytes) -> _BodyKind | None:
    match first:
        case b"":
            return None
        case b"{" | b"[":
            return _BodyKind.PIECE
        case b"<":
            return _BodyKind.PAGE
    return _BodyKind.STREAM


def _one_line_events(data: bytes) -> tuple[list[dict[str, Any]], bool] | None:
    """Events of one line each, as most servers send them, and whether the end is among them; None
    if they are anything else: what is more than JSON between them is not valid in an array."""
    if not (data.startswith(_DATA) and data.endswith(b"\n\n")):
        return None
    lines = data[len(_DATA) :].split(_BETWEEN)
    ends = lines[-1] == _LAST_LINE
    if ends:
        lines.pop()
    merged = _merged(lines)
    events = _all_parsed(b"[%b]" % b",".join(merged), len(merged))
    return None if events is None else (events, ends)


def _merged(lines: list[bytes]) -> list[bytes]:
    """One event for several in a row that differ only in the text that they add: parsing is most of
    the work on a stream."""
    merged: list[list[bytes]] = []
    before = after = None
    for line in lines:
        head, mark, rest = line.partition(_TEXT)
        text, quote, tail = rest.partition(b'"')
        if not mark or text[-1:] == b"\\":  # No text, or one with a quote in it.
            merged.append([line])
            before = None
        elif head == before and tail == after:
            merged[-1].insert(-1, text)
        else:
            merged.append([head, mark, text, quote + tail])
            before, after = head, tail
    return [b"".join(pieces) for pieces in merged]


def _any_events(data: bytes) -> tuple[Iterable[Mapping[str, Any]], bool]:
    """The events, and whether the end is among them. If parsing all in one go fails, they are
    parsed one by one, so that those before the bad one are read."""
    try:
        blocks = data.decode("utf-8-sig").split("\n\n")
    except UnicodeDecodeError:
        raise UnreadableError("it is not UTF-8") from None
    payloads = [payload for block in blocks if (payload := _payload(block))]
    ends = END in payloads
    if ends:
        del payloads[payloads.index(END) :]
    events = _all_parsed(f"[{','.join(payloads)}]", len(payloads))
    return map(_event, payloads) if events is None else events, ends


def _all_parsed(array: bytes | str, count: int) -> list[dict[str, Any]] | None:
    """In one go, which halves the time, with a parser that halves it again but rejects lone
    surrogates. None if that fails."""
    try:
        events = from_json(array, allow_inf_nan=False)
    except ValueError:
        return None
    is_right = len(events) == count and all(type(event) is dict for event in events)
    return cast("list[dict[str, Any]]", events) if is_right else None


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
    """The error without a piece of the text, which may be a piece of a key."""
    match error:
        case json.JSONDecodeError():
            return f"{error.msg} at line {error.lineno}, column {error.colno}"
        case UnicodeDecodeError():
            return "not UTF-8"
        case DuplicateKeyError():
            return "it has a duplicate key"
        case RecursionError():
            return "nested too deeply"
    return "it contains an invalid number"
