"""One attempt from beginning to end: the target answers, the panel judges.

Whatever goes wrong in it is its result. Only a cancel comes out as an exception, after what ran is
gone.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

from paraval.grade.grader import Subject
from paraval.grade.panel import Panel
from paraval.processes.children import Warden
from paraval.records import (
    Attempt,
    AttemptResult,
    CommandTarget,
    Failure,
    FunctionTarget,
    Outcome,
)
from paraval.targets.answer import Answer, Answerer
from paraval.targets.capture import Logs, captured
from paraval.targets.command import CommandAnswerer
from paraval.targets.function import FunctionAnswerer
from paraval.targets.isolated import IsolatedAnswerer


class Attempts:
    """Performs attempts at every kind of target."""

    def __init__(
        self,
        *,
        commands: CommandAnswerer,
        functions: FunctionAnswerer,
        isolated: IsolatedAnswerer,
        panel: Panel,
        warden: Warden,
        run_folder: Path,
    ) -> None:
        self._commands = commands
        self._functions = functions
        self._isolated = isolated
        self._panel = panel
        self._warden = warden
        self._run_folder = os.fspath(run_folder)

    async def perform(self, attempt: Attempt) -> AttemptResult:
        began = time.perf_counter()
        try:
            answer = await self._answerer(attempt).answer(attempt)
            return await self._judged(attempt, answer, began)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not cost the other trials
            return _our_own_bug(error, time.perf_counter() - began)

    def kill(self) -> None:
        self._warden.kill_all()

    async def close(self) -> None:
        await self._isolated.close()

    def _answerer(self, attempt: Attempt) -> Answerer:
        match attempt.trial.target:
            case CommandTarget():
                return self._commands
            case FunctionTarget(isolate=True):
                return self._isolated
            case FunctionTarget():
                return self._functions

    async def _judged(self, attempt: Attempt, answer: Answer, began: float) -> AttemptResult:
        if answer.output is None:
            assert answer.failure is not None
            return AttemptResult(
                outcome=answer.failure.kind,
                error=answer.failure,
                duration_s=time.perf_counter() - began,
                exit_code=answer.exit_code,
                artifacts=self._relative(answer.artifacts),
                notes=answer.notes,
            )
        trial = attempt.trial
        subject = Subject(
            case=trial.case,
            variant=trial.variant,
            repeat=trial.repeat,
            output=answer.output,
            exit_code=answer.exit_code,
            label=trial.label,
        )
        logs = Logs(f"{attempt.folder}/graders")
        with captured(logs):
            verdict = await self._panel.judge(subject, attempt.folder)
        said = {f"graders.{stream}": path for stream, path in logs.close().items()}
        return AttemptResult(
            outcome=verdict.outcome,
            output=answer.output,
            grades=verdict.grades,
            score=verdict.score,
            error=verdict.error,
            duration_s=time.perf_counter() - began,
            exit_code=answer.exit_code,
            artifacts=self._relative({**answer.artifacts, **verdict.artifacts, **said}),
            notes=answer.notes,
        )

    def _relative(self, artifacts: Mapping[str, str]) -> Mapping[str, str]:
        """Paths within the run's folder, so that it can be moved."""
        return {name: os.path.relpath(path, self._run_folder) for name, path in artifacts.items()}


def _our_own_bug(error: Exception, duration_s: float) -> AttemptResult:
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = (
        f"a fault of paraval itself, please report it: {type(error).__name__}: {error} "
        f"({Path(last.filename).name}:{last.lineno})"
    )
    return AttemptResult(
        outcome=Outcome.INFRA_ERROR,
        error=Failure(kind=Outcome.INFRA_ERROR, message=message),
        duration_s=duration_s,
    )
