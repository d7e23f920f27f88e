"""`capsys`, `capsysbinary` and `capteesys` for a test that runs beside others.

They are pytest's own, since what they assign to sys.stdout is seen by their turn alone. Only what
pytest's capture manager does with them, one for the whole process, is done here for each turn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, AnyStr

import pytest
from _pytest.capture import SysCapture, SysCaptureBinary

from paraval.pytest_plugin.captured import OUTPUTS, Captured
from paraval.pytest_plugin.streams import ENCODING, StreamName
from paraval.pytest_plugin.turns import Turn, current

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
