"""Output of functions, separated by attempt although they share one process.

During a run, sys.stdout and sys.stderr are routers: what is written in an attempt's own context
(its task or thread) goes to that attempt's files, everything else to the original stream. A thread
that the function starts has its own context and is not captured.
"""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from paraval.settings import LOG_LIMIT_BYTES


class Logs:
    """The output of one attempt: files that are created with the first character."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}
        self._sizes: dict[str, int] = {}
        self._closed = False

    def write(self, stream: str, data: bytes) -> None:
        if not data or self._closed:
            return
        size = self._sizes.get(stream, 0)
        self._sizes[stream] = size + len(data)
        kept = data[: max(0, LOG_LIMIT_BYTES - size)]
        if not kept:
            return
        if stream not in self._files:
            place = Path(self._folder)
            place.mkdir(parents=True, exist_ok=True)
            self._files[stream] = (place / f"{stream}.log").open("wb", buffering=0)
        self._files[stream].write(kept)

    def write_traceback(self, error: BaseException) -> None:
        """Write to stderr, as Python would have."""
        story = "".join(traceback.format_exception(error))
        # Half a surrogate pair has no UTF-8 bytes, but may be in any message.
        self.write("stderr", story.encode(errors="backslashreplace"))

    def close(self) -> Mapping[str, str]:
        """Close the files and return their paths by stream."""
        self._closed = True
        for stream, file in self._files.items():
            left_out = self._sizes[stream] - LOG_LIMIT_BYTES
            if left_out > 0:
                file.write(f"\n[... {left_out} bytes left out ...]\n".encode())
            file.close()
        return {stream: file.name for stream, file in self._files.items()}


_logs: ContextVar[Logs | None] = ContextVar("paraval_logs", default=None)


class _Bytes(io.RawIOBase):
    """The binary side of a router, for writes to sys.stdout.buffer."""

    def __init__(self, stream: str, before: TextIO) -> None:
        self._stream = stream
        self._before = before

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        logs = _logs.get()
        if logs is None:
            return self._before.buffer.write(data)
        logs.write(self._stream, bytes(data))
        return len(data)


class _Router(io.TextIOBase):
    def __init__(self, stream: str, before: TextIO) -> None:
        self._stream = stream
        self._before = before
        self.buffer = _Bytes(stream, before)

    def write(self, text: str, /) -> int:
        logs = _logs.get()
        if logs is None:
            return self._before.write(text)
        logs.write(self._stream, text.encode(errors="replace"))
        return len(text)

    def flush(self) -> None:
        if not self._before.closed:
            self._before.flush()

    def close(self) -> None:
        """Do nothing: the original stream is not ours to close."""

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return _logs.get() is None and self._before.isatty()

    def fileno(self) -> int:
        return self._before.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-only on purpose
        return self._before.encoding


class _Installed:
    """The routers, shared by all runs of this process that overlap in time."""

    runs = 0
    before: tuple[TextIO, TextIO] | None = None


@contextmanager
def routed_streams() -> Iterator[None]:
    """Route what attempts print to their logs while this is open."""
    if _Installed.runs == 0:
        _Installed.before = (sys.stdout, sys.stderr)
        sys.stdout = _Router("stdout", sys.stdout)
        sys.stderr = _Router("stderr", sys.stderr)
    _Installed.runs += 1
    try:
        yield
    finally:
        _Installed.runs -= 1
        if _Installed.runs == 0 and _Installed.before is not None:
            sys.stdout, sys.stderr = _Installed.before


@contextmanager
def captured(logs: Logs) -> Iterator[None]:
    """Route what the current context writes to these logs."""
    token = _logs.set(logs)
    try:
        yield
    finally:
        _logs.reset(token)
