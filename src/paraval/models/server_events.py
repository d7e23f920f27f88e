"""Server-sent events: the data of each event, from the bytes of a stream.

Event names, ids and retry times are left out: the protocols say in the data what an event is.
"""

from __future__ import annotations


class EventBytes:
    """The bytes of a stream, taken apart at the blank lines between events."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def __len__(self) -> int:
        return len(self._rest)

    def __bytes__(self) -> bytes:
        return bytes(self._rest)

    def begin(self) -> bytes:
        """The first bytes that say something; white space before them is dropped."""
        self._rest = self._rest.removeprefix(b"\xef\xbb\xbf").lstrip()
        return bytes(self._rest[:1])

    def feed(self, chunk: bytes) -> None:
        self._rest += chunk

    def take(self) -> list[str]:
        """The data of all events that are complete; the others stay for later."""
        data = bytes(self._rest)
        # A lone CR at the end may be half of a line's end.
        held = b"\r" if data.endswith(b"\r") else b""
        data = _with_plain_lines(data[: len(data) - len(held)])
        end = data.rfind(b"\n\n") + 2
        if end < 2:
            return []
        self._rest = bytearray(data[end:] + held)
        return _payloads(data[:end])

    def take_rest(self) -> list[str]:
        """The same when nothing more comes: servers leave out the last blank line."""
        data = _with_plain_lines(bytes(self._rest))
        self._rest.clear()
        return _payloads(data)


def _with_plain_lines(data: bytes) -> bytes:
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data


def _payloads(data: bytes) -> list[str]:
    """UnicodeDecodeError where it is not UTF-8."""
    payloads = []
    for block in data.decode("utf-8-sig").split("\n\n"):
        if block.startswith("data: ") and "\n" not in block:
            payloads.append(block[6:])
        elif block and (payload := _payload(block)):
            payloads.append(payload)
    return payloads


def _payload(block: str) -> str:
    lines = [line[5:] for line in block.split("\n") if line.startswith("data:")]
    return "\n".join(line.removeprefix(" ") for line in lines)
