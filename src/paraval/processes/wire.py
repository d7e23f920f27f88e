"""How the engine and a supervisor talk: frames of a length and its bytes; most contain a mapping.
And the engine's requests to the warden, one byte each.

Text from the file system or the environment travels as UTF-8 with escaped surrogates, so that both
ends mean the same bytes whatever locale they run in.
"""

from __future__ import annotations

import marshal
import os
import struct

TYPE_CHECKING = False  # avoids `typing`, which takes longer to load than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

KEEP = b"k"
"""Sent along with descriptors, for a supervisor to serve. Both ends count these requests."""
KILL_SUPERVISOR = b"x"
"""Followed by the number of the request whose supervisor is meant."""
REQUEST_NUMBER = struct.Struct("!Q")
_LENGTH = struct.Struct("!I")


def frame(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


def message_frame(message: Mapping[str, Any]) -> bytes:
    # Both ends run the same Python, and `json` would take a warden as long to load as all the rest.
    return frame(marshal.dumps(dict(message)))


def read_message(payload: bytes) -> dict[str, Any]:
    message: dict[str, Any] = marshal.loads(payload)  # noqa: S302 - from our own process only
    return message


class Frames:
    """Bytes in as they come, whole frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def __iter__(self) -> Iterator[bytes]:
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield payload


def portable(text: str) -> str:
    """Encode a path, an argument or a variable so that the other end reads the same, whatever the
    locale."""
    return text if text.isascii() else os.fsencode(text).decode("utf-8", "surrogateescape")
