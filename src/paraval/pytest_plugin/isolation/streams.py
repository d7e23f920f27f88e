"""sys.stdout, sys.stderr and sys.stdin of concurrent tests: each use decides whose they are.

A stream that code stores (in a logging handler created by another test) writes for the test that
uses it. What a test assigns to `sys.stdout`, directly or with `contextlib.redirect_stdout`, applies
only to this test: the module `sys` temporarily has a class whose attributes are per test. C code
(`print` without a file) reads the module's dictionary instead, and finds a `StreamProxy` there.

`capture` stores the output.
"""

from __future__ import annotations

import fcntl
import io
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TextIO

from paraval.pytest_plugin.running.current_test import current_test

if TYPE_CHECKING:
    from typing_extensions import Buffer

StreamName = Literal["stdout", "stderr", "stdin"]

ENCODING = "utf-8"


class Sink(Protocol):
    """Where bytes end up."""

    def write(self, data: bytes) -> None: ...

    def fileno(self) -> int: ...

    def isatty(self) -> bool: ...


class StreamSink:
    """A sink that writes to a text stream immediately."""

    def __init__(self, stream: Callable[[], TextIO]) -> None:
        self._stream = stream
        self.lock = threading.RLock()
        """Guards the stream, and keeps the lines written to it together."""

    def write(self, data: bytes) -> None:
        if data:
            with self.lock:
                self._stream().write(data.decode(ENCODING, "replace"))
                self._stream().flush()

    def fileno(self) -> int:
        return self._stream().fileno()

    def isatty(self) -> bool:
        return self._stream().isatty()


class LineSink:
    """A sink that passes on whole lines, so that those of several tests don't mix."""

    def __init__(self, through: StreamSink) -> None:
        self._through = through
        self._unfinished = b""

    def write(self, data: bytes) -> None:
        with self._through.lock:
            whole, newline, rest = (self._unfinished + data).rpartition(b"\n")
            self._unfinished = rest
            self._through.write(whole + newline)

    def end(self) -> None:
        """Pass on an unfinished last line."""
        with self._through.lock:
            rest, self._unfinished = self._unfinished, b""
            self._through.write(rest)

    def fileno(self) -> int:
        return self._through.fileno()

    def isatty(self) -> bool:
        return self._through.isatty()


class SinkBuffer(io.BufferedIOBase):
    """A binary file that looks up its sink at each use."""

    def __init__(self, name: str, find: Callable[[], Sink]) -> None:
        super().__init__()
        self._find = find
        self.name = name
        self.mode = "wb"

    def write(self, data: Buffer, /) -> int:
        given = data if isinstance(data, bytes) else memoryview(data).tobytes()
        self._find().write(given)
        return len(given)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._find().fileno()

    def isatty(self) -> bool:
        return self._find().isatty()

    def close(self) -> None:
        """Ignored: a single test must not close it."""


class SinkStream(io.TextIOWrapper):
    """A text file over a `SinkBuffer`. Unbuffered: text and bytes keep their order."""

    def __init__(self, name: str, find: Callable[[], Sink], *, errors: str = "replace") -> None:
        super().__init__(
            SinkBuffer(f"<{name}>", find),
            encoding=ENCODING,
            errors=errors,
            newline="",
            write_through=True,
        )

    @property
    def mode(self) -> str:
        return "w"

    def reconfigure(self, **settings: Any) -> None:
        """Accepted without effect: all tests use the stream."""

    def detach(self) -> NoReturn:
        raise io.UnsupportedOperation("detach")

    def close(self) -> None:
        """Ignored: a single test must not close it."""


class SharedStream(SinkStream):
    """A test's sys.stdout unless it assigns another. Code may keep it for a long time."""


class StreamProxy:
    """What C code finds as sys.stdout: forwards everything to what Python code finds."""

    def __init__(self, seen: Callable[[], Any]) -> None:
        self._seen = seen

    def write(self, text: str) -> Any:
        stream = self._seen()
        return len(text) if stream is None else stream.write(text)

    def flush(self) -> None:
        stream = self._seen()
        if stream is not None:
            stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._seen(), name)


class StandardStream:
    """One of the process's standard streams."""

    def __init__(self, name: StreamName, *, errors: str, leftover: TextIO | None) -> None:
        self.name = name
        self.outside = _outermost(name)
        """The previous stream, which the installing thread still sees."""
        self._home = threading.get_ident()
        self.through = StreamSink(self._outside_now)
        self._leftover = self.through if leftover is None else StreamSink(lambda: leftover)
        """For threads that belong to no test, or to finished tests."""
        self.front = StreamProxy(self.seen)
        self._stream = SharedStream(name, self._sink, errors=errors)

    @property
    def plain(self) -> Any:
        """What a test sees if it assigned nothing."""
        return self.outside if self.name == "stdin" else self._stream

    def seen(self) -> Any:
        """What `sys.<name>` is for the calling code."""
        test = current_test()
        if test is not None:
            return test.captured.own_streams.get(self.name, self.plain)
        return self.outside if threading.get_ident() == self._home else self.plain

    def assign(self, stream: Any) -> None:
        test = current_test()
        is_ours = isinstance(stream, SharedStream | StreamProxy)
        if test is not None:
            if is_ours:
                test.captured.own_streams.pop(self.name, None)
            else:
                test.captured.own_streams[self.name] = stream
        elif not is_ours and threading.get_ident() == self._home:
            self.outside = stream
        # Otherwise the test is over, and its assignments have no effect.

    def forget(self) -> None:
        self.assign(self._stream)

    def _sink(self) -> Sink:
        test = current_test()
        if test is not None:
            sink: Sink = test.captured.outputs[self.name]
            return sink
        # While an exclusive test runs, a stored stream prints where pytest's own streams do.
        is_home = self.name in installed and threading.get_ident() == self._home
        return self.through if is_home else self._leftover

    def _outside_now(self) -> TextIO:
        """A handler may keep the stream until after this one is removed or installed again."""
        now = installed.get(self.name)
        return _outermost(self.name) if now is None else now.outside


installed: dict[StreamName, StandardStream] = {}
"""The process's streams while they are installed."""


@contextmanager
def install_streams(*, errors: str, leftovers: dict[StreamName, TextIO]) -> Iterator[None]:
    """Within the block, give each test its own streams.

    `leftovers` receive the output of threads outside of tests; without one, it goes where it did
    before.
    """
    made: dict[StreamName, StandardStream] = {
        name: StandardStream(name, errors=errors, leftover=leftovers.get(name))
        for name in ("stdin", "stdout", "stderr")
    }
    plain_class = sys.__class__
    for name, channel in made.items():
        setattr(sys, name, channel.front)
    sys.__class__ = _class_with(made)
    installed.update(made)
    try:
        yield
    finally:
        installed.clear()
        sys.__class__ = plain_class
        for name, channel in made.items():
            setattr(sys, name, channel.outside)


def _outermost(name: StreamName) -> TextIO:
    """What `sys.<name>` is outside, never one of ours that code stored and restored too late."""
    stream: Any = getattr(sys, name)
    is_ours = isinstance(stream, SharedStream | StreamProxy)
    outermost: TextIO = getattr(sys, f"__{name}__") if is_ours else stream
    return outermost


def _class_with(made: dict[StreamName, StandardStream]) -> type[ModuleType]:
    def attribute(channel: StandardStream) -> property:
        return property(
            lambda _: channel.seen(),
            lambda _, stream: channel.assign(stream),
            lambda _: channel.forget(),
        )

    return type(
        "module", (ModuleType,), {name: attribute(channel) for name, channel in made.items()}
    )


# ---- a test's output


IN_MEMORY_BYTES = 1 << 20
"""Per stream of each running test, so that a hundred tests can print concurrently."""


class OutputSpool:
    """Output that was written and not taken yet. After `close`, further output is dropped."""

    def __init__(self, in_memory_bytes: int = IN_MEMORY_BYTES) -> None:
        self._in_memory_bytes = in_memory_bytes
        self._lock = threading.RLock()
        """Guards all attributes below. Reentrant: a finalizer may print."""
        self._memory = bytearray()
        self._file: FileIO | None = None
        self._taken = 0
        """How much of the file has been taken."""
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
        """The file's descriptor, for children to write to; earlier output comes first."""
        with self._lock:
            if self._is_closed:
                raise ValueError("the test is over; its output is no longer captured")
            return self._made_file().fileno()

    def take(self) -> bytes:
        """Return what was written since the last call."""
        with self._lock:
            if self._file is None:
                data = bytes(self._memory)
                self._memory.clear()
                return data
            if os.fstat(self._file.fileno()).st_size < self._taken:
                # A child truncated it, as `echo ... > /dev/stdout` does.
                self._taken = 0
            parts: list[bytes] = []
            # Read by offset, without seeking: children share the file's position.
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

    def _made_file(self) -> FileIO:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - `close` closes it
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
