"""What a test prints while others run beside it: kept for its report, as pytest's capture does.

The modes are those of pytest's `--capture`: `fd` and `sys` keep it, `tee-sys` keeps it and shows
it, `no` shows it; what is shown of tests that run at once comes in whole lines. The streams
themselves are left to `streams`.
"""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, AnyStr, TextIO

import pytest
from _pytest.capture import SysCapture, SysCaptureBinary

from paraval.pytest_plugin.isolation import streams
from paraval.pytest_plugin.isolation.streams import (
    ENCODING,
    Lines,
    Sink,
    SinkStream,
    Spool,
    StreamName,
)
from paraval.pytest_plugin.running.current_test import Phase, Turn, current

OUTPUTS: tuple[StreamName, ...] = ("stdout", "stderr")


def mode_of(config: pytest.Config) -> str:
    """Without pytest's capture plugin, nothing is kept."""
    return str(getattr(config.option, "capture", "no"))


class Voice:
    """One stream of one turn; a sink."""

    def __init__(self, name: StreamName, mode: str) -> None:
        self._name = name
        self._mode = mode
        self.spool = Spool()
        """Empty where nothing is kept."""
        self._shown: Lines | None = None

    def write(self, data: bytes) -> None:
        if self._mode != "no":
            self.spool.write(data)
        if self._mode in {"no", "tee-sys"}:
            self._lines().write(data)

    def take(self) -> str:
        if self._shown is not None:
            self._shown.end()
        return self.spool.take().decode(ENCODING, "replace")

    def fileno(self) -> int:
        if self._mode == "no":
            return self._lines().fileno()
        if self._mode == "fd":
            return self.spool.descriptor()
        raise io.UnsupportedOperation(f"with --capture={self._mode}, sys.{self._name} has no file")

    def isatty(self) -> bool:
        return self._mode == "no" and self._lines().isatty()

    def _lines(self) -> Lines:
        if self._shown is None:
            self._shown = Lines(streams.installed[self._name].through)
        return self._shown


class Captured:
    """What one turn prints, and what it has put in the place of the streams."""

    def __init__(self, config: pytest.Config) -> None:
        self.mode = mode_of(config)
        self.voices = {name: Voice(name, self.mode) for name in OUTPUTS}
        self.own_streams: dict[StreamName, Any] = {}
        """What its code assigned to sys.stdout and the like."""
        self.fixture: TurnCapture[Any] | None = None
        """The test's `capsys` or one of its kin."""
        self._lifted: list[tuple[dict[StreamName, Any], list[Lines]]] = []
        self._assigned_in: set[Phase] = set()

    def sink(self, name: StreamName) -> Sink:
        return self.voices[name]

    def take(self, phase: Phase) -> list[tuple[str, str]]:
        """What was printed in the phase that ends, by stream, for the sections of its report."""
        self._put_streams_back(phase)
        if self.fixture is not None:
            self.fixture.hand_over()
        texts = [(name, voice.take()) for name, voice in self.voices.items()]
        return [(name, text) for name, text in texts if text]

    def assigned(self) -> bool:
        """Whether a phase ended with a stream of its own in place of sys.stdout or sys.stderr.

        It is put back then, as pytest does after each phase. No other test has seen it.
        """
        return bool(self._assigned_in)

    def close(self) -> None:
        """The turn is over: what it still prints is dropped."""
        for voice in self.voices.values():
            voice.spool.close()

    # ---- printing past it

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """What the turn prints in the block goes where it went before there were turns."""
        self.lift()
        try:
            yield
        finally:
            self.lower()

    def lift(self) -> None:
        before = dict(self.own_streams)
        shown: list[Lines] = []
        for name in OUTPUTS:
            shown.append(lines := Lines(streams.installed[name].through))
            self.own_streams[name] = SinkStream(name, partial(_itself, lines))
        self._lifted.append((before, shown))

    def lower(self) -> None:
        """As it was before the last `lift`; without one, nothing."""
        if self._lifted:
            self.own_streams, shown = self._lifted.pop()
            for lines in shown:
                lines.end()

    def _put_streams_back(self, phase: Phase) -> None:
        while self._lifted:
            self.lower()
        rightful = {} if self.fixture is None else self.fixture.streams()
        for name in OUTPUTS:
            if self.own_streams.get(name) is not rightful.get(name):
                self._assigned_in.add(phase)
                self.own_streams.pop(name, None)
        self.own_streams |= rightful


def _itself(sink: Sink) -> Sink:
    return sink


@contextmanager
def streams_apart(config: pytest.Config) -> Iterator[None]:
    """While the block runs, what turns print is kept apart; others print as before.

    pytest's own capture is to be suspended, as it is between tests.
    """
    if streams.installed:
        # A session within a test of another: the streams find the inner turns by themselves.
        yield
        return
    # As pytest's files are: strict when they are of memory.
    errors = "replace" if mode_of(config) == "fd" else "strict"
    with (
        streams.channels(errors=errors, leftovers=kept_files(config)),
        manager_apart(config),
    ):
        yield


# ---- capsys


TEE = "capteesys"
NAMES = ("capsys", "capsysbinary", TEE)


class TurnCapture(pytest.CaptureFixture[AnyStr]):
    """What the test is given."""

    captured: Captured
    is_tee: bool

    def streams(self) -> dict[StreamName, Any]:
        """What sys.stdout and sys.stderr are to the test."""
        if self._capture is None:
            return {}
        sides: tuple[Any, ...] = (self._capture.out, self._capture.err)
        return {name: side.tmpfile for name, side in zip(OUTPUTS, sides, strict=True)}

    def hand_over(self) -> None:
        """A phase ends: what was not read is told in its report, and can be read afterwards."""
        if self._capture is None:
            return
        out, err = self._capture.readouterr()
        self._captured_out += out
        self._captured_err += err
        if not self.is_tee:
            for name, told in zip(OUTPUTS, (out, err), strict=True):
                self.captured.sink(name).write(_as_bytes(told))

    def close(self) -> None:
        # First: pytest's own way to hand over is to print, which takes the test's own thread.
        self.hand_over()
        super().close()

    @contextmanager
    def disabled(self) -> Generator[None]:
        """What is printed in the block is shown."""
        with self.captured.lifted():
            yield


def _as_bytes(told: str | bytes) -> bytes:
    return told if isinstance(told, bytes) else told.encode(ENCODING, "replace")


def capsys_for(turn: Turn, name: str, request: pytest.FixtureRequest) -> TurnCapture[Any]:
    """One of `NAMES`, at work; until it is closed, it is the turn's only one."""
    if turn.captured.fixture is not None:
        had = turn.captured.fixture.request.fixturename
        request.raiseerror(f"cannot use {name} and {had} at the same time")
    kind: Any = SysCaptureBinary if name == "capsysbinary" else SysCapture
    # Before pytest 8.4, which brought `capteesys`, there is no `config`.
    named: dict[str, Any] = {"config": {"tee": True}} if name == TEE else {}
    fixture: TurnCapture[Any] = TurnCapture(kind, request, _ispytest=True, **named)  # type: ignore[arg-type]  # a hook is given a SubRequest
    fixture.captured, fixture.is_tee = turn.captured, name == TEE
    turn.captured.fixture = fixture
    fixture._start()
    return fixture


def set_up_capsys(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> object | None:
    """The body of a `pytest_fixture_setup`; None: it is not one of pytest's own, or no turn's."""
    name, turn = fixturedef.argname, current()
    if turn is None or name not in NAMES or fixturedef.func.__module__ != SysCapture.__module__:
        return None
    fixture = capsys_for(turn, name, request)
    fixturedef.addfinalizer(_end(fixture))
    fixturedef.cached_result = (fixture, fixturedef.cache_key(request), None)  # type: ignore[arg-type]  # a hook is given a SubRequest
    return fixture


def _end(fixture: TurnCapture[Any]) -> Callable[[], None]:
    def end() -> None:
        fixture.close()
        fixture.captured.fixture = None

    return end


# ---- pytest's own capture


def kept_files(config: pytest.Config) -> dict[StreamName, TextIO]:
    """What pytest's global capture writes to; nothing with `-s`."""
    manager = config.pluginmanager.getplugin("capturemanager")
    kept = getattr(manager, "_global_capturing", None)
    files: dict[StreamName, TextIO | None] = {
        "stdout": getattr(getattr(kept, "out", None), "tmpfile", None),
        "stderr": getattr(getattr(kept, "err", None), "tmpfile", None),
    }
    return {name: file for name, file in files.items() if file is not None}


@contextmanager
def manager_apart(config: pytest.Config) -> Iterator[None]:
    with ExitStack() as stack:
        for name, file in kept_files(config).items():
            stack.enter_context(_file_apart(name, file))
        manager = config.pluginmanager.getplugin("capturemanager")
        if manager is not None:
            stack.enter_context(_requests_apart(manager))
        yield


@contextmanager
def _file_apart(name: StreamName, file: TextIO) -> Iterator[None]:
    """Handlers that were made as tests were imported hold pytest's file as their stream."""
    write = file.write

    def write_apart(text: str) -> int:
        turn = current()
        if turn is None:
            return write(text)
        turn.captured.sink(name).write(text.encode(ENCODING, "replace"))
        return len(text)

    with _covered(file, "write", write_apart):
        yield


@contextmanager
def _requests_apart(manager: Any) -> Iterator[None]:
    """A turn that suspends the capture, to show something, prints past its own alone.

    Nobody's code finds a capture that is suspended, and leaves it so: to resume it would take the
    terminal away from the reporters.
    """
    disabled = manager.global_and_fixture_disabled
    suspend, resume = manager.suspend_global_capture, manager.resume_global_capture
    kept = getattr(manager, "_global_capturing", None)
    is_suspended = kept is None or not kept.is_started()

    def disabled_apart() -> AbstractContextManager[None]:
        turn = current()
        made: AbstractContextManager[None] = turn.captured.lifted() if turn else disabled()
        return made

    def suspend_apart(in_: bool = False) -> None:
        if (turn := current()) is not None:
            turn.captured.lift()
        elif not is_suspended:
            suspend(in_)

    def resume_apart() -> None:
        if (turn := current()) is not None:
            turn.captured.lower()
        elif not is_suspended:
            resume()

    with (
        _covered(manager, "global_and_fixture_disabled", disabled_apart),
        _covered(manager, "suspend_global_capture", suspend_apart),
        _covered(manager, "resume_global_capture", resume_apart),
    ):
        yield


@contextmanager
def _covered(owner: object, name: str, cover: Callable[..., Any]) -> Iterator[None]:
    """An attribute of the thing's own lies over what its class has, or over what it had."""
    had = name in vars(owner)
    before = vars(owner).get(name)
    setattr(owner, name, cover)
    try:
        yield
    finally:
        if had:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


# ---- child processes


_POSITIONS = {"stdout": 4, "stderr": 5, "env": 10}
"""Among what Popen is given: args, bufsize, executable, stdin, stdout, stderr, ..."""


@contextmanager
def children_apart(config: pytest.Config) -> Iterator[None]:
    """While the block runs. A child that outlives its test writes to a file that nobody reads."""
    begin, system = subprocess.Popen.__init__, os.system
    if mode_of(config) == "fd":
        _share_files_with_forks()

    def begin_apart(child: subprocess.Popen[Any], *args: Any, **named: Any) -> None:
        given = list(args)
        for name, make in _inherited().items():
            position = _POSITIONS[name]
            if position < len(given):
                given[position] = make() if given[position] is None else given[position]
            elif named.get(name) is None:
                named[name] = make()
        begin(child, *given, **named)

    def system_apart(command: Any) -> int:
        if current() is None:
            return system(command)
        code = subprocess.call(command, shell=True)  # noqa: S602 - it is what os.system does
        return code << 8 if code >= 0 else -code

    subprocess.Popen.__init__ = begin_apart  # type: ignore[method-assign,assignment]  # put back below
    os.system = system_apart
    try:
        yield
    finally:
        subprocess.Popen.__init__ = begin  # type: ignore[method-assign]  # as it was
        os.system = system


def _inherited() -> dict[str, Callable[[], Any]]:
    """By argument of Popen: what makes the test's own of what a child would inherit."""
    turn, captured = current(), _captured()
    made: dict[str, Callable[[], Any]] = {}
    if captured is not None:
        made |= {name: captured.voices[name].spool.descriptor for name in OUTPUTS}
    if turn is not None and turn.environment:
        made["env"] = os.environ.copy
    return made


def _captured() -> Captured | None:
    turn = current()
    # Forks are looked at for good, also after a session of another mode.
    return None if turn is None or turn.captured.mode != "fd" else turn.captured


# ---- children that are forked, as multiprocessing does on Linux

_is_sharing = False


def _share_files_with_forks() -> None:
    """Once for the process, as this cannot be taken back; it does nothing for code of nobody."""
    global _is_sharing  # noqa: PLW0603 - it is the process's, as the registration is
    if not _is_sharing:
        _is_sharing = True
        os.register_at_fork(before=_make_files, after_in_child=_unlock)


def _make_files() -> None:
    """What a forked child prints into memory would be lost with it."""
    captured = _captured()
    if captured is not None:
        for voice in captured.voices.values():
            voice.spool.descriptor()


def _unlock() -> None:
    captured = _captured()
    if captured is not None:
        for voice in captured.voices.values():
            voice.spool.unlock_after_fork()
