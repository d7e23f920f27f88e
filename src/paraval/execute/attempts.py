"""One attempt from beginning to end: the target answers, the panel judges.

Whatever goes wrong in it is its result. Only a cancel comes out as an exception, after what ran is
gone.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from paraval.grade.grader import Subject
from paraval.grade.panel import Panel
from paraval.models.conversation import merged_uses
from paraval.processes.children import Warden
from paraval.records import (
    AgentTarget,
    Attempt,
    AttemptResult,
    ChatTarget,
    CommandTarget,
    Failure,
    FunctionTarget,
    Outcome,
    Output,
    Spend,
    Target,
)
from paraval.targets.agent import AgentAnswerer
from paraval.targets.answer import Answer, Answerer
from paraval.targets.capture import Logs, captured
from paraval.targets.chat import ChatAnswerer
from paraval.targets.command import CommandAnswerer
from paraval.targets.function import FunctionAnswerer
from paraval.targets.isolated import IsolatedAnswerer

NOTHING = Spend()
"""What an answer costs that was paid for by an earlier attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answerers:
    """One for each kind of target."""

    commands: CommandAnswerer
    functions: FunctionAnswerer
    isolated: IsolatedAnswerer
    chats: ChatAnswerer
    agents: AgentAnswerer

    def for_target(self, target: Target) -> Answerer:
        match target:
            case CommandTarget():
                return self.commands
            case FunctionTarget(isolate=True):
                return self.isolated
            case FunctionTarget():
                return self.functions
            case ChatTarget():
                return self.chats
            case AgentTarget():
                return self.agents


class Attempts:
    """Performs attempts at every kind of target."""

    def __init__(
        self, answerers: Answerers, *, panel: Panel, warden: Warden, run_folder: Path
    ) -> None:
        self._answerers = answerers
        self._panel = panel
        self._warden = warden
        self._run_folder = os.fspath(run_folder)
        self._unjudged: dict[int, Answer] = {}
        """Answers whose judge could not be had: the next attempt at the trial begins with it, and
        pays the target no second time."""

    async def perform(self, attempt: Attempt) -> AttemptResult:
        began = time.perf_counter()
        try:
            answer = self._unjudged.pop(attempt.trial.index, None)
            if answer is None:
                answer = await self._answerers.for_target(attempt.trial.target).answer(attempt)
            return await self._judged(attempt, answer, began)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not cost the other trials
            return _our_own_bug(error, time.perf_counter() - began)

    def forget(self, index: int) -> None:
        self._unjudged.pop(index, None)

    def kill(self) -> None:
        self._warden.kill_all()

    async def close(self) -> None:
        await self._answerers.isolated.close()

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
                spend=answer.spend,
                uses=answer.uses,
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
        if verdict.outcome not in (Outcome.PASSED, Outcome.FAILED, Outcome.GRADER_ERROR):
            self._unjudged[trial.index] = replace(answer, spend=NOTHING, uses=())
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
            spend=answer.spend if answer.spend is not None else _told_spend(answer.output),
            judging=verdict.judging,
            uses=merged_uses((*answer.uses, *verdict.uses)),
        )

    def _relative(self, artifacts: Mapping[str, str]) -> Mapping[str, str]:
        """Paths within the run's folder, so that it can be moved."""
        return {name: os.path.relpath(path, self._run_folder) for name, path in artifacts.items()}


def _told_spend(output: Output) -> Spend | None:
    """What a command or a function says that it spent; None where it says nothing."""
    if output.cost_usd is None and not output.usage:
        return None
    return Spend(cost_usd=output.cost_usd, usage=output.usage)


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
