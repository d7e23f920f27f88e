"""Bytes that a test printed: in memory while they are few, then in a file.

The file is also what child processes write to: everyone appends to it, so the order is kept.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from io import FileIO

IN_MEMORY_BYTES = 1 << 20
"""For each stream of each test that runs: what a hundred tests print at once does no harm."""


class Spool:
    """What was written and not taken yet. After `close`, what is still written is dropped."""

    def __init__(self, in_memory_bytes: int = IN_MEMORY_BYTES) -> None:
        self._in_memory_bytes = in_memory_bytes
        self._lock = threading.RLock()
        """Guards all below. The same thread may come twice: a finalizer that prints."""
        self._memory = bytearray()
        self._file: FileIO | None = None
        self._taken = 0
        """How much of the file."""
        self._is_closed = False

    def write(self, data: bytes) -> None:
        with self._lock:
            if self._is_closed:
                return
            if self._file is None and len(self._memory) + len(data) <= self._in_memory_bytes:
                self._memory += data
            else:
                _write_all(self._made_file().fileno(), data)

    def descriptor(self) -> int:
        """Of the file, for children to write to; what was printed before stands before."""
        with self._lock:
            if self._is_closed:
                raise ValueError("the test is over, and what it prints is not kept any more")
            return self._made_file().fileno()

    def take(self) -> bytes:
        """What was written since the last time."""
        with self._lock:
            if self._file is None:
                data = bytes(self._memory)
                self._memory.clear()
                return data
            if os.fstat(self._file.fileno()).st_size < self._taken:
                # A child emptied it: `echo ... > /dev/stdout` does.
                self._taken = 0
            parts: list[bytes] = []
            # Read by place, not by seeking: children share the file's position.
            while part := os.pread(self._file.fileno(), 1 << 24, self._taken):
                parts.append(part)
                self._taken += len(part)
            return b"".join(parts)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._memory.clear()
            if self._file is not None:
                self._file.close()
                self._file = None

    def unlock_after_fork(self) -> None:
        """In a forked child: whoever held the lock is not there any more."""
        self._lock = threading.RLock()

    def _made_file(self) -> FileIO:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - `close` does
            descriptor = self._file.fileno()
            flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_APPEND)
            _write_all(descriptor, bytes(self._memory))
            self._memory.clear()
        return self._file


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
