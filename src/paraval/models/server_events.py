"""Server-sent events: the data of each event, from the bytes of a stream.

Event names, ids and retry times are left out: the protocols say in the data what an event is.
"""

from __future__ import annotations


class EventBytes:
    """The bytes of a stream, taken apart at the blank lines between events."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._looked_at = 0
        """How much of the rest holds no end of an event."""
        self._after_cr = False

    def __len__(self) -> int:
        return len(self._rest)

    def __bytes__(self) -> bytes:
        return bytes(self._rest)

    def begin(self) -> bytes:
        """The first bytes that say something; white space before them is dropped."""
        self._rest = self._rest.removeprefix(b"\xef\xbb\xbf").lstrip()
        return bytes(self._rest[:1])

    def feed(self, chunk: bytes) -> None:
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_plain_lines(chunk)
        self._rest += chunk

    def take(self) -> list[str]:
        """The data of all events that are complete; the others stay for later."""
        rest = self._rest
        # Only in what is new: an event of many lines is not looked through again for each of them.
        end = rest.rfind(b"\n\n", max(0, self._looked_at - 1)) + 2
        if end < 2:
            self._looked_at = len(rest)
            return []
        data = bytes(rest[:end])
        del rest[:end]
        self._looked_at = len(rest)
        return _payloads(data)

    def take_rest(self) -> list[str]:
        """The same when nothing more comes: servers leave out the last blank line."""
        data = bytes(self._rest)
        self._rest.clear()
        self._looked_at = 0
        return _payloads(data)

    def _with_plain_lines(self, chunk: bytes) -> bytes:
        """A CR ends a line whatever comes, and an LF after it, also in the next chunk, is part of
        the same end: to wait for it would be to wait for ever where the stream stays open."""
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _payloads(data: bytes) -> list[str]:
    """UnicodeDecodeError where it is not UTF-8."""
    text = data.decode("utf-8-sig")
    if text.startswith("data: ") and text.endswith("\n\n"):
        payloads = text[6:-2].split("\n\ndata: ")
        if text.count("\n") == 2 * len(payloads) and "" not in payloads:
            # One line each, as most servers write them: there is nothing else to look for.
            return payloads
    return [payload for block in text.split("\n\n") if (payload := _payload(block))]


def _payload(block: str) -> str:
    lines = [line[5:] for line in block.split("\n") if line.startswith("data:")]
    return "\n".join(line.removeprefix(" ") for line in lines)
