"""One attempt from start to end: prepare a workspace, get the target's answer, grade it.

Whatever goes wrong is part of its result. Only cancellation raises, after everything that ran is
gone.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from paraval.dataclass import dataclass
from paraval.git.run_git import GitError
from paraval.grade.grader import Subject
from paraval.grade.panel import Panel, PanelVerdict
from paraval.models.requests import merged_uses
from paraval.models.secrets import Redactor, strings_in
from paraval.processes.children import Warden
from paraval.records import (
    PATCH,
    WORKSPACE_NEED,
    AgentTarget,
    Attempt,
    AttemptResult,
    ChatTarget,
    CommandTarget,
    Failure,
    FunctionTarget,
    Grade,
    HiddenFiles,
    Outcome,
    Output,
    SkippedGrader,
    Spend,
    StoredTarget,
    Target,
    TargetLimits,
)
from paraval.targets.answer import Answerer, TargetAnswer
from paraval.targets.chat import ChatAnswerer
from paraval.targets.command import CommandAnswerer
from paraval.targets.function import FunctionAnswerer
from paraval.targets.function_logs import Logs, captured
from paraval.targets.isolated import IsolatedAnswerer
from paraval.targets.redaction import redact_files, redact_folder
from paraval.workspaces.workspace import (
    KEY_IN_PATCH,
    KeptWorkspace,
    Lease,
    PlacedFiles,
    WorkspaceError,
    Workspaces,
)

if TYPE_CHECKING:
    from paraval.targets.agent import AgentAnswerer

NOTHING = Spend()
"""Cost of an answer paid for by an earlier attempt, or of an attempt that never began."""
_NO_LIMITS = TargetLimits()
_LAST_VERDICTS = (Outcome.PASSED, Outcome.FAILED, Outcome.GRADER_ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answerers:
    """One answerer for each kind of target."""

    commands: CommandAnswerer
    functions: FunctionAnswerer
    isolated: IsolatedAnswerer
    chats: ChatAnswerer
    agents: AgentAnswerer | None
    """None: there are no agents, and their adapters need not be loaded."""
    stored: Answerer | None = None
    """None: no answers of another run are graded."""

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
                assert self.agents is not None
                return self.agents
            case StoredTarget():
                assert self.stored is not None
                return self.stored


@dataclass(frozen=True, slots=True, kw_only=True)
class UnjudgedAnswer:
    """An answer that no judge has judged, with everything found out about it before."""

    answer: TargetAnswer
    kept: KeptWorkspace | None
    marks: Mapping[int, Grade | SkippedGrader]
    """Of the other graders, by position."""
    duration_s: float = 0.0
    """How long the attempt has taken so far, if this is the same one."""


@dataclass(slots=True, kw_only=True)
class _AttemptState:
    """What is known about an attempt in progress."""

    attempt: Attempt
    began: float = field(default_factory=time.perf_counter)
    kept: KeptWorkspace | None = None
    notes: tuple[str, ...] = ()

    @property
    def duration_s(self) -> float:
        return time.perf_counter() - self.began


class Attempts:
    """Performs attempts at every kind of target."""

    def __init__(  # noqa: PLR0913 - what attempts of any kind need
        self,
        answerers: Answerers,
        *,
        panel: Panel,
        warden: Warden,
        run_folder: Path,
        workspaces: Workspaces | None = None,
        hidden: Sequence[HiddenFiles] = (),
        redactor: Redactor | None = None,
    ) -> None:
        """`workspaces`: None if attempts run where their target says. `hidden`: of trials without
        a workspace of their own. `redactor` knows the secrets
        that attempts are given. If the panel's judges are asked elsewhere, the caller takes the
        answers that need one."""
        self._redactor = Redactor() if redactor is None else redactor
        self._answerers = answerers
        self._panel = panel
        self._warden = warden
        self._workspaces = workspaces
        self._hidden = hidden
        self._run_folder = os.fspath(run_folder)
        self._keep_unjudged = not panel.asks_judges
        self._unjudged: dict[int, UnjudgedAnswer] = {}
        """Keep the answer: the next attempt at the trial starts with it and does not pay the target
        again."""

    async def perform(self, attempt: Attempt) -> AttemptResult:
        """Redact the attempt's secrets from its result and from the files it leaves."""
        if not self._redactor:
            return await self._performed(attempt)
        unseen = 0
        try:
            result = self._clean_result(await self._performed(attempt))
        finally:
            # Also after a cancellation: what it left is kept.
            unseen = await redact_folder(attempt.folder, self._redactor)
        return replace(result, notes=(*result.notes, _unseen(unseen))) if unseen else result

    def _clean_result(self, result: AttemptResult) -> AttemptResult:
        """Redact all but the answer and what the target was sent, which `_answer` redacts before
        they are graded."""
        judges = tuple(one for one in result.exchanges if one.by)
        rest = replace(result, output=None, exchanges=judges)
        if not self._redactor.is_in(strings_in(rest)):
            return result
        clean: AttemptResult = self._redactor.data(result)
        return clean

    async def _performed(self, attempt: Attempt) -> AttemptResult:
        course = _AttemptState(attempt=attempt)
        try:
            unjudged = self._unjudged.pop(attempt.trial.index, None)
            if unjudged is not None:
                course.kept = unjudged.kept
                course.began -= unjudged.duration_s
                return await self._judged(course, unjudged.answer, unjudged.marks)
            if isinstance(attempt.trial.target, StoredTarget):
                return await self._graded_again(course)
            if self._workspaces is not None:
                return await self._in_a_workspace(course, self._workspaces)
            return await self._judged(course, await self._answer(attempt))
        except Exception as error:  # noqa: BLE001 - a bug of ours must not cost the other trials
            return _our_own_bug(error, course.duration_s)

    def widen(self, parallel: int) -> None:
        """So many attempts may run at a time from now on."""
        if self._workspaces is not None:
            self._workspaces.widen(parallel)

    def forget(self, index: int) -> None:
        self._unjudged.pop(index, None)

    def has_answer(self, index: int) -> bool:
        """Whether the next attempt at this trial only has to be judged."""
        return index in self._unjudged

    def put_answer(self, index: int, answer: UnjudgedAnswer) -> None:
        """The next attempt at this trial judges this answer."""
        self._unjudged[index] = answer

    def take_answer(self, index: int) -> UnjudgedAnswer | None:
        """The answer of the attempt that just ended, if a judge elsewhere has to judge it."""
        return self._unjudged.pop(index, None)

    def kill(self) -> None:
        self._warden.kill_all()

    async def close(self) -> None:
        await self._answerers.isolated.close()

    # ---- steps of an attempt

    async def _in_a_workspace(self, course: _AttemptState, workspaces: Workspaces) -> AttemptResult:
        try:
            lease = await workspaces.lease_for(course.attempt.trial)
        except WorkspaceError as error:
            return _without_a_workspace(error, course.duration_s)
        try:
            # Waiting for a workspace is queueing time, not part of the attempt's duration.
            course.began = time.perf_counter()
            course.notes = lease.notes
            course.attempt = replace(course.attempt, workspace=lease.path)
            answer = await self._answer(course.attempt)
            # Before the graders, which may leave files of their own there.
            course.kept = await self._clean(await lease.keep(course.attempt.folder))
            return await self._judged_with_hidden(course, answer, lease)
        finally:
            await lease.release()

    async def _graded_again(self, course: _AttemptState) -> AttemptResult:
        """Grade an answer of another run. Where graders need its files, they are made again: from
        what its attempt started with, and its patch."""
        answerer = self._answerers.for_target(course.attempt.trial.target)
        answer: TargetAnswer = self._redactor.data(await answerer.answer(course.attempt))
        change, patch = answer.change, answer.artifacts.get(PATCH)
        if change is not None:
            course.kept = KeptWorkspace(change=change, patch=patch)
        if self._workspaces is None or answer.output is None or change is None:
            return await self._judged(course, answer)
        from paraval.workspaces.patches import why_not_whole  # noqa: PLC0415 - few runs regrade

        if (why := why_not_whole(change, patch, answer.notes)) is not None:
            return self._judged_not(course, answer, why)
        try:
            lease = await self._workspaces.lease_for(course.attempt.trial)
        except WorkspaceError as error:
            return _without_a_workspace(error, course.duration_s)
        try:
            course.began, course.notes = time.perf_counter(), lease.notes
            course.attempt = replace(course.attempt, workspace=lease.path)
            try:
                if patch is not None:
                    await lease.apply(patch)
            except (GitError, WorkspaceError) as error:
                return self._judged_not(course, answer, error.message)
            return await self._judged_with_hidden(course, answer, lease)
        finally:
            await lease.release()

    async def _judged_with_hidden(
        self, course: _AttemptState, answer: TargetAnswer, lease: Lease
    ) -> AttemptResult:
        """Put the hidden files into place, flag what the attempt did to files of its grading, and
        grade."""
        trial, kept = course.attempt.trial, course.kept
        if answer.output is None or kept is None:
            return await self._judged(course, answer)
        hidden = self._hidden if trial.workspace is None else trial.workspace.hidden
        try:
            placed = await lease.put_hidden(hidden) if hidden else PlacedFiles()
        except WorkspaceError as error:
            failed = Failure(kind=Outcome.GRADER_ERROR, message=error.message)
            return self._failed(course, replace(answer, failure=failed))
        commands = self._panel.commands(trial.case.id)
        if placed.paths or commands:
            from paraval.workspaces.hidden_files import (  # noqa: PLC0415 - few runs need it
                flags,
                words_in,
            )

            words = words_in(commands, trial)
            seen = flags(kept.change, placed.paths, words, lease)
            found = (*kept.change.flagged, *seen, *placed.flags)
            change = replace(kept.change, flagged=tuple(dict.fromkeys(found)))
            course.kept = replace(kept, change=change)
        return await self._judged(course, answer)

    def _judged_not(self, course: _AttemptState, answer: TargetAnswer, why: str) -> AttemptResult:
        """Skip an answer whose files cannot be made again."""
        failure = Failure(kind=Outcome.SKIPPED, message=f"its workspace cannot be rebuilt: {why}")
        return self._failed(course, replace(answer, output=None, failure=failure))

    async def _clean(self, kept: KeptWorkspace) -> KeptWorkspace:
        """Redact secrets from the files that an attempt wrote, and from their names."""
        if not self._redactor:
            return kept
        kept = replace(
            kept,
            change=self._redactor.data(kept.change),
            notes=self._redactor.data(kept.notes),
        )
        if kept.patch is None or not await redact_files((kept.patch,), self._redactor):
            return kept
        return replace(kept, notes=(*kept.notes, KEY_IN_PATCH))

    async def _answer(self, attempt: Attempt) -> TargetAnswer:
        began = time.perf_counter()
        answer = await self._answerers.for_target(attempt.trial.target).answer(attempt)
        target_s = time.perf_counter() - began
        spend = answer.spend
        if spend is None and answer.output is not None:
            spend = _reported_spend(answer.output)
        # Cached answers count with the time and cost of their first calls.
        saved_s = spend.cached_s if spend is not None and spend.cached else 0.0
        answer.target_s = target_s
        answer.answer_s = None if saved_s is None else target_s + saved_s
        answer.cost_usd = None if spend is None else spend.original_usd
        # Before grading: judges are models run by someone else.
        return self._redactor.data(answer)  # type: ignore[no-any-return]  # what it was given

    async def _judged(
        self,
        course: _AttemptState,
        answer: TargetAnswer,
        marks: Mapping[int, Grade | SkippedGrader] | None = None,
    ) -> AttemptResult:
        """`marks`: of graders that judged this answer before."""
        if answer.output is None:
            return self._failed(course, answer)
        attempt, trial = course.attempt, course.attempt.trial
        subject = Subject(
            case=trial.case,
            variant=trial.variant,
            repeat=trial.repeat,
            output=answer.output,
            steps=(answer.exchange.steps if answer.exchange else ()) or answer.output.steps,
            answer_s=answer.answer_s,
            cost_usd=answer.cost_usd,
            exit_code=answer.exit_code,
            label=trial.label,
            workspace=attempt.workspace,
            change=None if course.kept is None else course.kept.change,
            patch=None if course.kept is None else course.kept.patch,
            index=trial.index,
            limits=_limits_of(trial.target),
        )
        if self._panel.calls_functions(trial.case.id):
            logs = Logs(f"{attempt.folder}/graders")
            with captured(logs):
                verdict = await self._panel.judge(subject, attempt.folder, marks or {})
            if printed := {f"graders.{stream}": path for stream, path in logs.close().items()}:
                verdict = replace(verdict, artifacts={**verdict.artifacts, **printed})
        else:
            verdict = await self._panel.judge(subject, attempt.folder, marks or {})
        if verdict.outcome not in _LAST_VERDICTS:
            self._unjudged[trial.index] = UnjudgedAnswer(
                answer=replace(
                    answer,
                    notes=(*course.notes, *answer.notes),
                    artifacts={**answer.artifacts, **verdict.artifacts},
                )
                if self._keep_unjudged
                else replace(answer, spend=NOTHING, uses=(), target_s=0.0),
                kept=course.kept,
                marks=verdict.marks,
                duration_s=course.duration_s if self._keep_unjudged else 0.0,
            )
        return self._result(course, answer, verdict)

    def _failed(self, course: _AttemptState, answer: TargetAnswer) -> AttemptResult:
        failure = answer.failure
        assert failure is not None
        verdict = PanelVerdict(outcome=failure.kind, score=None, error=failure)
        return self._result(course, answer, verdict)

    def _result(
        self, course: _AttemptState, answer: TargetAnswer, verdict: PanelVerdict
    ) -> AttemptResult:
        kept, output = course.kept, answer.output
        artifacts = {**answer.artifacts, **verdict.artifacts}
        if kept is not None and kept.patch is not None:
            artifacts[PATCH] = kept.patch
        return AttemptResult(
            outcome=verdict.outcome,
            output=output,
            grades=verdict.grades,
            score=verdict.score,
            error=verdict.error,
            duration_s=course.duration_s,
            target_s=answer.target_s,
            exit_code=answer.exit_code,
            artifacts=self._relative(artifacts),
            notes=(
                *course.notes,
                *answer.notes,
                *(() if kept is None else kept.notes),
                *verdict.notes,
            ),
            spend=_reported_spend(output)
            if answer.spend is None and output is not None
            else answer.spend,
            judging=verdict.judging,
            uses=merged_uses((*answer.uses, *verdict.uses)) if verdict.uses else answer.uses,
            activity=answer.activity,
            change=None if kept is None else kept.change,
            cpu_s=answer.cpu_s,
            memory_bytes=answer.memory_bytes,
            exchanges=verdict.exchanges
            if answer.exchange is None
            else (answer.exchange, *verdict.exchanges),
        )

    def _relative(self, artifacts: Mapping[str, str]) -> Mapping[str, str]:
        """Paths relative to the run's folder, so that it can be moved."""
        return {name: os.path.relpath(path, self._run_folder) for name, path in artifacts.items()}


def _unseen(count: int) -> str:
    files, they = ("1 file was", "it is") if count == 1 else (f"{count} files were", "they are")
    return f"{files} too large to search for secrets, kept as {they}"


def _limits_of(target: Target) -> TargetLimits:
    """Limits that apply to graders' programs too: they run what the target wrote."""
    if isinstance(target, AgentTarget | CommandTarget | StoredTarget):
        return target.limits
    return _NO_LIMITS


def _without_a_workspace(error: WorkspaceError, duration_s: float) -> AttemptResult:
    failure = Failure(
        kind=Outcome.INFRA_ERROR,
        message=error.message if error.hint is None else f"{error.message} ({error.hint})",
        lasting=error.lasting,
        stops=WORKSPACE_NEED if error.lasting else None,
    )
    return AttemptResult(
        outcome=failure.kind, error=failure, duration_s=duration_s, target_s=0.0, spend=NOTHING
    )


def _reported_spend(output: Output) -> Spend | None:
    """What a command or a function reports as its spend; None if nothing."""
    if output.cost_usd is None and not output.usage:
        return None
    return Spend(cost_usd=output.cost_usd, usage=output.usage)


def _our_own_bug(error: Exception, duration_s: float) -> AttemptResult:
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = (
        f"a bug in paraval, please report it: {type(error).__name__}: {error} "
        f"({Path(last.filename).name}:{last.lineno})"
    )
    return AttemptResult(
        outcome=Outcome.INFRA_ERROR,
        error=Failure(kind=Outcome.INFRA_ERROR, message=message),
        duration_s=duration_s,
    )
