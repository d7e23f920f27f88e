"""What a test prints while others run beside it: kept for its report, as pytest's capture does.

The modes are those of pytest's `--capture`: `fd` and `sys` keep it, `tee-sys` keeps it and shows
it, `no` shows it; what is shown of tests that run at once comes in whole lines. What child
processes print is left to `children_output`, and the streams themselves to `streams`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from paraval.pytest_plugin import streams
from paraval.pytest_plugin.capture_manager import kept_files, manager_apart
from paraval.pytest_plugin.spools import Spool
from paraval.pytest_plugin.streams import ENCODING, Lines, Sink, SinkStream, StreamName
from paraval.pytest_plugin.turns import Phase

if TYPE_CHECKING:
    from paraval.pytest_plugin.capsys import TurnCapture

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
