"""sys.stdout, sys.stderr and sys.stdin of tests that run at once: whose they are, each use decides.

A stream that code keeps (a logging handler made in another test) writes for whoever uses it. What a
test assigns to `sys.stdout`, itself or by `contextlib.redirect_stdout`, is there for this test
alone: meanwhile, the module `sys` has a class whose attributes are each test's own. C code (`print`
without a file) looks into the module's dictionary instead, and finds a `StreamProxy` there.

Where a test's words are kept is left to `capture`.
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
    """A sink: on to a text stream, at once."""

    def __init__(self, stream: Callable[[], TextIO]) -> None:
        self._stream = stream
        self.lock = threading.RLock()
        """Guards the stream, and the lines on their way to it: they stay together."""

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
    """A sink: on to another, whole lines at a time, so that those of several tests don't mix."""

    def __init__(self, through: StreamSink) -> None:
        self._through = through
        self._unfinished = b""

    def write(self, data: bytes) -> None:
        with self._through.lock:
            whole, newline, rest = (self._unfinished + data).rpartition(b"\n")
            self._unfinished = rest
            self._through.write(whole + newline)

    def end(self) -> None:
        """What has no end of line is passed on, too."""
        with self._through.lock:
            rest, self._unfinished = self._unfinished, b""
            self._through.write(rest)

    def fileno(self) -> int:
        return self._through.fileno()

    def isatty(self) -> bool:
        return self._through.isatty()


class SinkBuffer(io.BufferedIOBase):
    """A binary file that writes to the sink that is found at each use."""

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
        """It is not one test's to close."""


class SinkStream(io.TextIOWrapper):
    """A text file over such a one. Nothing is held back: text and bytes keep their order."""

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
        """Accepted, and without effect: the stream is that of all tests."""

    def detach(self) -> NoReturn:
        raise io.UnsupportedOperation("detach")

    def close(self) -> None:
        """It is not one test's to close."""


class SharedStream(SinkStream):
    """What a test has as sys.stdout that has assigned nothing. It may be kept for long."""


class StreamProxy:
    """What C code finds as sys.stdout: passes all on to what Python code finds."""

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
    """One of the process's streams."""

    def __init__(self, name: StreamName, *, errors: str, leftover: TextIO | None) -> None:
        self.name = name
        self.outside = _outermost(name)
        """What was there before, and is there for the thread that put this up."""
        self._home = threading.get_ident()
        self.through = StreamSink(self._outside_now)
        self._leftover = self.through if leftover is None else StreamSink(lambda: leftover)
        """For threads of nobody, or of tests that are over."""
        self.front = StreamProxy(self.seen)
        self._stream = SharedStream(name, self._sink, errors=errors)

    @property
    def plain(self) -> Any:
        """What a test has that has assigned nothing."""
        return self.outside if self.name == "stdin" else self._stream

    def seen(self) -> Any:
        """What `sys.<name>` is for the code that asks."""
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
        # Else it is a test that is over, and what it still assigns concerns nobody.

    def forget(self) -> None:
        self.assign(self._stream)

    def _sink(self) -> Sink:
        test = current_test()
        if test is not None:
            sink: Sink = test.captured.outputs[self.name]
            return sink
        # While a test runs alone, what was kept prints where pytest's own streams do.
        is_home = self.name in installed and threading.get_ident() == self._home
        return self.through if is_home else self._leftover

    def _outside_now(self) -> TextIO:
        """Its stream may be kept by a handler until after this was taken down, or put up anew."""
        now = installed.get(self.name)
        return _outermost(self.name) if now is None else now.outside


installed: dict[StreamName, StandardStream] = {}
"""Those of this process, while they are in place."""


@contextmanager
def install_streams(*, errors: str, leftovers: dict[StreamName, TextIO]) -> Iterator[None]:
    """While the block runs, the streams are those of each test.

    `leftovers` take what threads of nobody print; without one, it goes where it went before.
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
    """What `sys.<name>` is outside; never one of ours that someone kept, and put back too late."""
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


# ---- bytes that a test printed


IN_MEMORY_BYTES = 1 << 20
"""For each stream of each test that runs: what a hundred tests print at once does no harm."""


class OutputSpool:
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
                raise ValueError("the test is over; its output is no longer captured")
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
