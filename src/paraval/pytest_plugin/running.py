"""The loop of a parallel run: what takes the place of pytest's own.

Tests become trials, the engine runs them, and the main thread tells reporters of each as it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from paraval.pytest_plugin.emitting import Emitter
from paraval.pytest_plugin.engine import Engine, Programme
from paraval.pytest_plugin.item_ends import ItemEnd
from paraval.pytest_plugin.performing import Premises, Tests
from paraval.pytest_plugin.progress import Progress
from paraval.pytest_plugin.stage import Stage
from paraval.pytest_plugin.timeouts import interrupt
from paraval.records import (
    AttemptEnded,
    AttemptStarted,
    Happening,
    Notice,
    TrialEnded,
    TrialSkipped,
)

GRACE_S = 3.0
"""How long tests have to end after Ctrl-C."""
TICK_S = 0.1


class ParallelRun:
    """One session's tests, from the first to the last."""

    def __init__(
        self,
        session: pytest.Session,
        programme: Programme,
        tests: Tests,
        *,
        premises: Premises,
        emitter: Emitter,
        progress: Progress,
    ) -> None:
        self._session = session
        self._programme = programme
        self._tests = tests
        self._premises = premises
        self._stage: Stage = premises.stage
        self._emitter = emitter
        self._progress = progress
        self._failure: BaseException | None = None
        self._engine = Engine(
            programme, performer=tests, tell=self._told, on_end=self._engine_ended
        )

    def run(self) -> None:
        """Until every test has ended, or the session is to stop."""
        try:
            self._engine.start()
            self._stage.serve(self._progress.tick, TICK_S)
        except BaseException:
            self._break_off()
            raise
        finally:
            self._progress.close()
            self._premises.apart.take_down()
        if self._failure is not None:
            raise self._failure

    # ---- in the engine's thread

    def _told(self, event: Happening) -> None:
        match event:
            case AttemptStarted(attempt=attempt):
                self._stage.post(partial(self._progress.started, attempt.trial.case.id))
            case AttemptEnded(attempt=attempt, result=result, retry_in_s=seconds):
                self._tests.take_end(attempt.trial.index)
            case TrialEnded(trial=trial, eta_s=eta_s):
                end = self._tests.take_end(trial.index)
                assert end is not None
                self._stage.post(partial(self._end, end, eta_s))
            case TrialSkipped():
                pass
            case Notice():
                pass
            case _:
                pass

    def _engine_ended(self, error: BaseException | None) -> None:
        self._failure = error
        self._stage.close()

    # ---- in the main thread

    def _end(self, end: ItemEnd, eta_s: float | None) -> None:
        if not end.is_told:
            self._emitter.emit(end)
        self._progress.ended(end, eta_s)
        if self._session.shouldfail or self._session.shouldstop:
            self._engine.end_early()

    def _break_off(self) -> None:
        """After Ctrl-C, pytest.exit or an error of a reporter: what runs may end, for a moment."""
        self._engine.end_early()
        interrupt(tuple(self._tests.running.values()), GRACE_S)
        self._engine.end_now()
        self._engine.join()
        self._stage.do_what_is_left()
