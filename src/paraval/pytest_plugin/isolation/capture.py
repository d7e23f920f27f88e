"""Captures what each of several concurrent tests prints, as pytest's capture does.

The modes are those of pytest's `--capture`: `fd` and `sys` capture, `tee-sys` captures and shows,
`no` shows. Output of concurrent tests is shown in whole lines. `streams` implements the streams.
"""

from __future__ import annotations

import inspect
import io
import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import methodcaller
from typing import Any, AnyStr, TextIO

import pytest

from paraval.pytest_plugin.isolation import streams
from paraval.pytest_plugin.isolation.streams import (
    ENCODING,
    LineSink,
    OutputSpool,
    SinkStream,
    StreamName,
)
from paraval.pytest_plugin.pytest_internals import SysCapture, SysCaptureBinary
from paraval.pytest_plugin.running.current_test import TestOutput, current_test

OUTPUTS: tuple[StreamName, ...] = ("stdout", "stderr")


def mode_of(config: pytest.Config) -> str:
    """The capture mode; without pytest's capture plugin, nothing is captured."""
    return str(getattr(config.option, "capture", "no"))


class OutputStream:
    """One stream of one test; a sink."""

    def __init__(self, name: StreamName, mode: str) -> None:
        self._name = name
        self._mode = mode
        self.spool = OutputSpool()
        """Empty if nothing is captured."""
        self._shown: LineSink | None = None

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

    def _lines(self) -> LineSink:
        if self._shown is None:
            self._shown = LineSink(streams.installed[self._name].through)
        return self._shown


class CapturedOutput:
    """What one test prints, and the streams that it put in place of the standard ones."""

    def __init__(self, config: pytest.Config) -> None:
        self.mode = mode_of(config)
        self.outputs = {name: OutputStream(name, self.mode) for name in OUTPUTS}
        self.own_streams: dict[StreamName, Any] = {}
        """What the test's code assigned to sys.stdout and the like."""
        self.fixture: CapsysCapture[Any] | None = None
        """The test's `capsys` or a similar fixture."""
        self._suspended: list[tuple[dict[StreamName, Any], dict[StreamName, LineSink]]] = []

    def take(self) -> list[tuple[str, str]]:
        """Return what the ending phase printed, by stream, for the sections of its report."""
        while self._suspended:
            self.resume()
        # As in pytest, whatever the test assigned to sys.stdout is dropped after each phase.
        for name in OUTPUTS:
            self.own_streams.pop(name, None)
        if self.fixture is not None:
            self.own_streams |= self.fixture.streams()
            self.fixture.hand_over()
        texts = [(name, output.take()) for name, output in self.outputs.items()]
        return [(name, text) for name, text in texts if text]

    def close(self) -> None:
        """End the capture: what the test still prints is dropped."""
        for output in self.outputs.values():
            output.spool.close()

    # ---- printing uncaptured

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Within the block, the test's output goes where it would without capture."""
        self.suspend()
        try:
            yield
        finally:
            self.resume()

    def suspend(self) -> None:
        before = dict(self.own_streams)
        shown = {name: LineSink(streams.installed[name].through) for name in OUTPUTS}
        for name in OUTPUTS:
            self.own_streams[name] = SinkStream(name, partial(shown.__getitem__, name))
        self._suspended.append((before, shown))

    def resume(self) -> None:
        """Undo the last `suspend`, if any."""
        if self._suspended:
            self.own_streams, shown = self._suspended.pop()
            for lines in shown.values():
                lines.end()


@contextmanager
def isolate_streams(config: pytest.Config) -> Iterator[None]:
    """Within the block, capture each test's output separately; other code prints as before.

    pytest's own capture must be suspended, as it is between tests.
    """
    if streams.installed:
        # A session inside a test of another session: the streams find the inner tests by
        # themselves.
        yield
        return
    # As pytest's files: in-memory ones are strict.
    errors = "replace" if mode_of(config) == "fd" else "strict"
    with (
        streams.install_streams(errors=errors, leftovers=kept_files(config)),
        isolate_capture_manager(config),
    ):
        yield


# ---- capsys


TEE = "capteesys"
NAMES = ("capsys", "capsysbinary", TEE)


class CapsysCapture(pytest.CaptureFixture[AnyStr]):
    """The fixture's value for a parallel test."""

    captured: TestOutput
    is_tee: bool

    def streams(self) -> dict[StreamName, Any]:
        """What sys.stdout and sys.stderr are for the test."""
        if self._capture is None:
            return {}
        sides: tuple[Any, ...] = (self._capture.out, self._capture.err)
        return {name: side.tmpfile for name, side in zip(OUTPUTS, sides, strict=True)}

    def hand_over(self) -> None:
        """At the end of a phase, put unread output into its report, but keep it readable."""
        if self._capture is None:
            return
        out, err = self._capture.readouterr()
        self._captured_out += out
        self._captured_err += err
        if not self.is_tee:
            for name, text in zip(OUTPUTS, (out, err), strict=True):
                self.captured.outputs[name].write(_as_bytes(text))

    def close(self) -> None:
        # Do this first: pytest's own way is to print, which only works in the test's own thread.
        self.hand_over()
        super().close()

    @contextmanager
    def disabled(self) -> Generator[None]:
        """Within the block, show what is printed."""
        with self.captured.suspended():
            yield


def _as_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode(ENCODING, "replace")


def set_up_capsys(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> object | None:
    """Set up the fixture for a parallel test; None: it is not pytest's own, or no test is running.

    A test can have only one until that is closed.
    """
    name, test = fixturedef.argname, current_test()
    if test is None or name not in NAMES or fixturedef.func.__module__ != SysCapture.__module__:
        return None
    captured = test.captured
    if captured.fixture is not None:
        had = captured.fixture.request.fixturename
        request.raiseerror(f"cannot use {name} and {had} at the same time")
    kind: Any = SysCaptureBinary if name == "capsysbinary" else SysCapture
    given: Any = request  # A hook is given a SubRequest.
    config = {"tee": True} if name == TEE else None
    fixture: CapsysCapture[Any] = CapsysCapture(kind, given, config=config, _ispytest=True)
    fixture.captured, fixture.is_tee = captured, name == TEE

    def end() -> None:
        fixture.close()
        captured.fixture = None

    captured.fixture = fixture
    fixture._start()
    fixturedef.addfinalizer(end)
    fixturedef.cached_result = (fixture, fixturedef.cache_key(given), None)
    return fixture


# ---- pytest's own capture


def kept_files(config: pytest.Config) -> dict[StreamName, TextIO]:
    """The files that pytest's global capture writes to; empty with `-s`."""
    manager = config.pluginmanager.getplugin("capturemanager")
    kept = getattr(manager, "_global_capturing", None)
    sides = zip(OUTPUTS, (getattr(kept, "out", None), getattr(kept, "err", None)), strict=True)
    return {name: side.tmpfile for name, side in sides if side is not None}


@contextmanager
def isolate_capture_manager(config: pytest.Config) -> Iterator[None]:
    with ExitStack() as stack:

        def cover(owner: object, name: str, own: Callable[..., Any]) -> None:
            """Set an instance attribute that hides the class's method."""
            setattr(owner, name, own)
            stack.callback(delattr, owner, name)

        for name, file in kept_files(config).items():
            cover(file, "write", partial(_write_for_test, name, file.write))
        manager: Any = config.pluginmanager.getplugin("capturemanager")
        if manager is not None:
            disabled = manager.global_and_fixture_disabled
            cover(
                manager,
                "global_and_fixture_disabled",
                lambda: (
                    disabled() if (test := current_test()) is None else test.captured.suspended()
                ),
            )
            # A test that suspends the capture to show something only suspends its own. For code
            # outside of tests it is suspended already, and stays so: resuming would take the
            # terminal from the reporters.
            cover(manager, "suspend_global_capture", partial(_for_test, methodcaller("suspend")))
            cover(manager, "resume_global_capture", partial(_for_test, methodcaller("resume")))
        yield


def _write_for_test(name: StreamName, write: Callable[[str], int], text: str) -> int:
    """Route writes to pytest's file: log handlers created at import hold it as their stream."""
    test = current_test()
    if test is None:
        return write(text)
    test.captured.outputs[name].write(text.encode(ENCODING, "replace"))
    return len(text)


def _for_test(act: Callable[[TestOutput], object], in_: bool = False) -> None:  # noqa: ARG001 - pytest's signature
    if (test := current_test()) is not None:
        act(test.captured)


# ---- child processes


@contextmanager
def isolate_children() -> Iterator[None]:
    """Give child processes the test's streams and environment.

    A child that outlives its test writes to a file that is never read.
    """
    begin, system = subprocess.Popen.__init__, os.system
    parameters = inspect.signature(begin)

    def begin_for_test(*args: Any, **named: Any) -> None:
        given = parameters.bind(*args, **named)
        for name, make in _inherited().items():
            if given.arguments.get(name) is None:
                given.arguments[name] = make()
        begin(*given.args, **given.kwargs)

    def system_for_test(command: Any) -> int:
        if current_test() is None:
            return system(command)
        code = subprocess.call(command, shell=True)  # noqa: S602 - as os.system does
        return code << 8 if code >= 0 else -code

    subprocess.Popen.__init__ = begin_for_test  # type: ignore[method-assign]  # restored below
    os.system = system_for_test
    try:
        yield
    finally:
        subprocess.Popen.__init__ = begin  # type: ignore[method-assign]  # the original
        os.system = system


def _inherited() -> dict[str, Callable[[], Any]]:
    """By Popen argument: a factory for the test's version of what a child would inherit."""
    test = current_test()
    if test is None:
        return {}
    made: dict[str, Callable[[], Any]] = {}
    if test.captured.mode == "fd":
        made |= {name: output.spool.descriptor for name, output in test.captured.outputs.items()}
    if test.environment:
        made["env"] = os.environ.copy
    return made


def _make_files() -> None:
    """Use files before a fork: what a forked child prints into memory would be lost."""
    test = current_test()
    if test is not None and test.captured.mode == "fd":
        for output in test.captured.outputs.values():
            output.spool.descriptor()


# Permanent, because it cannot be unregistered; does nothing outside of tests.
os.register_at_fork(before=_make_files)
