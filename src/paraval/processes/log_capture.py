"""Writes the output of a command to a log file: the head in full, past a limit only the end.

Memory stays bounded whatever comes. Files and folders are created at the first byte, so that a
silent command leaves none. A log that cannot be written is noted and never stops the command.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import termios

TAIL_BYTES = 64 << 10
_CHUNK_BYTES = 64 << 10


class LogFile:
    """One log file."""

    def __init__(self, path: str, limit: int) -> None:
        self.total = 0
        """Bytes received, kept or not."""
        self.error: str | None = None
        self._path = path
        self._limit = limit
        self._kept = 0
        self._tail = b""
        self._file: int | None = None

    @property
    def is_cut(self) -> bool:
        """Whether the limit was reached; for other write problems see `error`."""
        return self._left_out > 0

    @property
    def _left_out(self) -> int:
        return self.total - self._kept - len(self._tail)

    def write(self, chunk: bytes) -> None:
        self.total += len(chunk)
        head = chunk[: max(0, self._limit - self._kept)]
        if head:
            self._append(head)
            self._kept += len(head)
        rest = chunk[len(head) :]
        if rest:
            self._tail = (self._tail + rest)[-TAIL_BYTES:]

    def finish(self) -> None:
        """Write what was held back for the end, and close."""
        if self._left_out:
            self._append(b"\n[... %d bytes left out ...]\n" % self._left_out)
        if self._tail:
            self._append(self._tail)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, data: bytes) -> None:
        if self.error is not None:
            return
        try:
            if self._file is None:
                self._file = _create(self._path)
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, "error")
            self.error = f"{name}: cannot write '{self._path}': {error.strerror}"


def _create(path: str) -> int:
    # A link or a pipe in its place may be the command's: to redirect writes to where it may not
    # write, or to block its supervisor.
    kept_out = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | kept_out
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - pathlib is heavy here
        return os.open(path, flags, 0o666)


class PipeReader:
    """The reading end of a pipe from a command, and its current log."""

    def __init__(self, pipe: int, log: LogFile) -> None:
        os.set_blocking(pipe, False)
        self.pipe: int | None = pipe
        self.log = log

    def read(self) -> int:
        """Copy one chunk and return its size; 0 if there is none now, or never again."""
        if self.pipe is None:
            return 0
        try:
            chunk = os.read(self.pipe, _CHUNK_BYTES)
        except BlockingIOError:
            return 0
        if chunk:
            self.log.write(chunk)
        else:
            self.close()
        return len(chunk)

    def switch(self, log: LogFile) -> LogFile:
        """Continue in another log; what is already in the pipe still belongs to the old one."""
        waiting = self._waiting_bytes()
        while waiting > 0:
            size = self.read()
            if not size:
                break
            waiting -= size
        old, self.log = self.log, log
        old.finish()
        return old

    def close(self) -> None:
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None

    def _waiting_bytes(self) -> int:
        # Asked for once: a command that writes continuously must not delay the switch forever.
        if self.pipe is None:
            return 0
        (waiting,) = struct.unpack("i", fcntl.ioctl(self.pipe, termios.FIONREAD, b"\0" * 4))
        return int(waiting)
