"""What a test prints while others run beside it: kept for its report, as pytest's capture does.

The modes are those of pytest's `--capture`: `fd` and `sys` keep it, `tee-sys` keeps it and shows
it, `no` shows it; what is shown of tests that run at once comes in whole lines. The streams
themselves are left to `streams`.
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
    """Without pytest's capture plugin, nothing is kept."""
    return str(getattr(config.option, "capture", "no"))


class OutputStream:
    """One stream of one test; a sink."""

    def __init__(self, name: StreamName, mode: str) -> None:
        self._name = name
        self._mode = mode
        self.spool = OutputSpool()
        """Empty where nothing is kept."""
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
    """What one test prints, and what it has put in the place of the streams."""

    def __init__(self, config: pytest.Config) -> None:
        self.mode = mode_of(config)
        self.outputs = {name: OutputStream(name, self.mode) for name in OUTPUTS}
        self.own_streams: dict[StreamName, Any] = {}
        """What its code assigned to sys.stdout and the like."""
        self.fixture: CapsysCapture[Any] | None = None
        """The test's `capsys` or one of its kin."""
        self._suspended: list[tuple[dict[StreamName, Any], dict[StreamName, LineSink]]] = []

    def take(self) -> list[tuple[str, str]]:
        """What was printed in the phase that ends, by stream, for the sections of its report."""
        while self._suspended:
            self.resume()
        # As pytest does after each phase: what the test put in place of sys.stdout is gone.
        for name in OUTPUTS:
            self.own_streams.pop(name, None)
        if self.fixture is not None:
            self.own_streams |= self.fixture.streams()
            self.fixture.hand_over()
        texts = [(name, output.take()) for name, output in self.outputs.items()]
        return [(name, text) for name, text in texts if text]

    def close(self) -> None:
        """The test is over: what it still prints is dropped."""
        for output in self.outputs.values():
            output.spool.close()

    # ---- printing past it

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """What the test prints in the block goes where it would without capture."""
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
        """As it was before the last `suspend`; without one, nothing."""
        if self._suspended:
            self.own_streams, shown = self._suspended.pop()
            for lines in shown.values():
                lines.end()


@contextmanager
def isolate_streams(config: pytest.Config) -> Iterator[None]:
    """While the block runs, what each test prints is kept for itself; others print as before.

    pytest's own capture is to be suspended, as it is between tests.
    """
    if streams.installed:
        # A session within a test of another: the streams find the inner tests by themselves.
        yield
        return
    # As pytest's files are: strict when they are of memory.
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
    """What the test is given."""

    captured: TestOutput
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
                self.captured.outputs[name].write(_as_bytes(told))

    def close(self) -> None:
        # First: pytest's own way to hand over is to print, which takes the test's own thread.
        self.hand_over()
        super().close()

    @contextmanager
    def disabled(self) -> Generator[None]:
        """What is printed in the block is shown."""
        with self.captured.suspended():
            yield


def _as_bytes(told: str | bytes) -> bytes:
    return told if isinstance(told, bytes) else told.encode(ENCODING, "replace")


def set_up_capsys(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> object | None:
    """The body of a `pytest_fixture_setup`; None: it is not one of pytest's own, or no test's.
    Until it is closed, it is the test's only one."""
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
    """What pytest's global capture writes to; nothing with `-s`."""
    manager = config.pluginmanager.getplugin("capturemanager")
    kept = getattr(manager, "_global_capturing", None)
    sides = zip(OUTPUTS, (getattr(kept, "out", None), getattr(kept, "err", None)), strict=True)
    return {name: side.tmpfile for name, side in sides if side is not None}


@contextmanager
def isolate_capture_manager(config: pytest.Config) -> Iterator[None]:
    with ExitStack() as stack:

        def cover(owner: object, name: str, own: Callable[..., Any]) -> None:
            """An attribute of the thing's own lies over what its class has."""
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
            # A test that suspends the capture, to show something, prints past its own alone. For
            # nobody's code it is suspended already, and stays so: to resume it would take the
            # terminal away from the reporters.
            cover(manager, "suspend_global_capture", partial(_for_test, methodcaller("suspend")))
            cover(manager, "resume_global_capture", partial(_for_test, methodcaller("resume")))
        yield


def _write_for_test(name: StreamName, write: Callable[[str], int], text: str) -> int:
    """Handlers that were made as tests were imported hold pytest's file as their stream."""
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
    """While the block runs. A child that outlives its test writes to a file that nobody reads."""
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
        code = subprocess.call(command, shell=True)  # noqa: S602 - it is what os.system does
        return code << 8 if code >= 0 else -code

    subprocess.Popen.__init__ = begin_for_test  # type: ignore[method-assign]  # put back below
    os.system = system_for_test
    try:
        yield
    finally:
        subprocess.Popen.__init__ = begin  # type: ignore[method-assign]  # as it was
        os.system = system


def _inherited() -> dict[str, Callable[[], Any]]:
    """By argument of Popen: what makes the test's own of what a child would inherit."""
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
    """What a forked child (of multiprocessing, for instance) prints into memory would be lost."""
    test = current_test()
    if test is not None and test.captured.mode == "fd":
        for output in test.captured.outputs.values():
            output.spool.descriptor()


# For good, as this cannot be taken back; it does nothing for code of nobody.
os.register_at_fork(before=_make_files)
