"""Grades the stored answers of a run again, with a suite's graders as they are now.

A regrade is a run of its own that names its source. Its plan has the trials that both have, by
case, variant and repeat; their target is the stored answer, so nothing is called but judges.
Limits, budget, retries and resumes are those of any run.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Hashable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from paraval.errors import RequestError
from paraval.execute.driver import COUNTED_AS_FAILED
from paraval.functions import Functions
from paraval.grade.function import FunctionGrader
from paraval.plain_files import PlainFileError, open_plain_file
from paraval.plan.suite import Suite
from paraval.records import (
    Attempt,
    AttemptResult,
    ChatTarget,
    Exchange,
    Failure,
    FunctionTarget,
    GraderSpec,
    Limits,
    Outcome,
    Plan,
    RunInfo,
    SkippedGrader,
    Spend,
    StoredTarget,
    Target,
    TargetLimits,
    Trial,
    TrialResult,
    Workspace,
    WorkspaceKind,
)
from paraval.schedule.estimates import variant_key
from paraval.settings import AUTO_MOST_PER_CORE, MOST_CALLS, Selection, is_of_tests, is_race
from paraval.store.encoding import to_json
from paraval.store.store import Store
from paraval.targets.answer import TargetAnswer
from paraval.text.words import counted, listed
from paraval.threads import Threads

_FILTERS = ("cases", "tags", "sample", "limit", "variants")
LEAST_COMMANDS = 32
"""Graders that are commands run in parallel, on a machine with few cores, too."""
_ASKED = {"prompt": "prompt", "models": "models", "target": "target"}
"""Parts of a suite that decide an answer, in words."""
_OF_SOURCE = (*_ASKED, "workspace")
_ATTEMPT_DEPTH = 4
"""Parts of an artifact's path up to its attempt's folder: artifacts/ab/abcd/1."""


def source_of(store: Store, name: str) -> RunInfo:
    """The run to regrade, if it has answers and no engine works on it."""
    info = store.find(name)
    selection = store.selection(info)
    if is_race(selection) or store.grows(info):
        raise RequestError(
            f"run {info.id} is a race, which has no graders", hint="name a run of a suite"
        )
    if is_of_tests(selection):
        raise RequestError(
            f"run {info.id} is a pytest session, which has no graders",
            hint="name a run of a suite",
        )
    if info.running:
        raise RequestError(f"run {info.id} is still running", hint="regrade it when it has ended")
    return info


class StoredAnswers:
    """The answers of a run, for one that grades them again: its plan, and its answerer."""

    def __init__(self, store: Store, name: str) -> None:
        self.run = source_of(store, name)
        is_here = Path(self.run.folder).parent == store.runs_folder
        self._name = self.run.id if is_here else self.run.folder
        self._reader = store.reader(self.run)
        self._places: dict[tuple[str, Hashable, int], int] = {
            (case, variant_key(variant), repeat): index
            for index, case, variant, repeat in self._reader.answered()
        }
        self._planned: dict[int, int | str] = {}
        """Trial of the regrade -> trial of its source, or why its answer cannot be graded."""
        self._models = Selection.from_mapping(self._reader.selection()).models
        self.notices: list[str] = []
        if not self._places:
            self._reader.close()
            raise RequestError(f"run {self.run.id} has no answers to grade")

    async def close(self) -> None:
        self._reader.close()

    # ---- what is graded

    def selection(self, suite: Suite, asked: Selection) -> Selection:
        """The trials of the source, narrowed to what is asked for."""
        earlier = Selection.from_mapping(self._reader.selection())
        known = {case for case, _, _ in self._places}
        shared = tuple(case.id for case in suite.cases if case.id in known)
        if not shared:
            raise RequestError(f"the suite has no case of run {self.run.id}")
        return replace(
            asked,
            regrade=self._name,
            only=() if len(shared) == len(suite.cases) else shared,
            repeats=max(repeat for _, _, repeat in self._places),
            models=asked.models or earlier.models,
            ref=earlier.ref,
            commit=earlier.commit,
        )

    def plan(self, suite: Suite, plan: Plan) -> Plan:
        """The suite's plan, with stored answers in place of its targets."""
        inputs = {case.id: to_json(case.input) for case in self._reader.cases()}
        targets: dict[int, StoredTarget] = {}
        trials: list[Trial] = []
        for trial in plan.trials:
            place = self._places.get((trial.case.id, variant_key(trial.variant), trial.repeat))
            if place is None:
                continue
            target = targets.setdefault(id(trial.target), _stored(trial.target))
            self._planned[len(trials)] = (
                place
                if inputs[trial.case.id] == to_json(trial.case.input)
                else f"its input has changed since run {self.run.id}"
            )
            trials.append(replace(trial, index=len(trials), target=target))
        if not trials:
            raise RequestError(f"run {self.run.id} has no answer for any of these trials")
        workspace = self._workspace(suite, plan)
        about = tuple(self._of_the_answers(plan, workspace))
        self.notices = [*self._of_the_choice(plan, len(trials)), *about]
        # What decided the answers is the source's, whatever the suite says now.
        of_source = {part: now for part, now in self.run.parts.items() if part in _OF_SOURCE}
        others = {part: now for part, now in plan.parts.items() if part not in _OF_SOURCE}
        return replace(
            plan,
            trials=tuple(trials),
            workspace=workspace,
            models=None,
            limits=_limits_of_graders(plan),
            regraded_from=self.run.id,
            notices=about,
            parts={**others, **of_source},
        )

    def _of_the_choice(self, plan: Plan, number: int) -> Iterator[str]:
        run = self.run.id
        yield f"Regrading {counted(number, 'answer')} of run {run}: only graders run."
        if missing := len(plan.trials) - number:
            are = "is" if missing == 1 else "are"
            yield f"{counted(missing, 'trial')} {are} left out: run {run} has no answer."
        chosen = any(name in plan.selection for name in _FILTERS)
        chosen |= tuple(plan.selection.get("models", ())) != self._models
        if not chosen and (dropped := len(self._places) - number):
            yield (f"{counted(dropped, 'answer')} of run {run} left out: no longer in the suite.")

    def _of_the_answers(self, plan: Plan, workspace: Workspace) -> Iterator[str]:
        """What the report repeats."""
        before = self.run.parts
        changed = [
            words
            for part, words in _ASKED.items()
            if before and before.get(part) != plan.parts.get(part)
        ]
        if changed:
            have = "has" if changed in (["prompt"], ["target"]) else "have"
            yield (
                f"The suite's {listed(changed)} {have} changed since run {self.run.id}, whose"
                " answers are graded all the same."
            )
        if workspace.kind is not WorkspaceKind.NONE:
            yield (
                "Workspaces are rebuilt from patches. Files ignored by git are missing, so graders"
                " that need them fail."
            )

    def _workspace(self, suite: Suite, plan: Plan) -> Workspace:
        """Where graders work on the files that attempts left; none if no grader needs files."""
        if not any(_needs_files(spec, suite.functions) for spec in plan.grading.every):
            return Workspace()
        before = self.run.parts.get("workspace")
        if before is not None and before != plan.parts["workspace"]:
            what = "the settings or contents of the suite's workspace"
            if plan.workspace.kind is WorkspaceKind.FOLDER and plan.workspace.source is not None:
                what = f"the contents of the folder {plan.workspace.source}, or its settings,"
            raise RequestError(
                f"a grader needs the files that attempts left, and {what} have changed since run"
                f" {self.run.id}",
                hint="restore its files, ref and setup, or remove the graders that need files; an"
                " uncommitted tree must not contain the suite that you change",
            )
        return plan.workspace

    # ---- the answers

    async def answer(self, attempt: Attempt) -> TargetAnswer:
        place = self._planned[attempt.trial.index]
        if isinstance(place, str):
            return TargetAnswer(failure=Failure(kind=Outcome.SKIPPED, message=place))
        found = self._reader.result(place)
        end = found.result
        files = await asyncio.to_thread(self._copied, end, attempt) if end.artifacts else {}
        spend = _from_before(found)
        return TargetAnswer(
            output=end.output,
            failure=None if end.output is not None else _failure(end),
            exit_code=end.exit_code,
            artifacts=files,
            notes=tuple(note for note in end.notes if SkippedGrader.from_note(note) is None),
            spend=spend,
            target_s=0.0 if _is_cached(found) else found.time_s,
            answer_s=_answer_s(found),
            cost_usd=None if spend is None else spend.original_usd,
            activity=end.activity,
            change=end.change,
            exchange=self._exchange(place, found.attempts),
        )

    def _exchange(self, place: int, attempts: int) -> Exchange | None:
        """The target's; an attempt that only asked a judge again has none."""
        numbers = range(attempts, 0, -1)
        found = (one for number in numbers for one in self._reader.exchanges(place, number))
        return next((one for one in found if not one.by), None)

    def text(self, trial: Trial) -> str | None:
        """An answer's text, to find out which verdicts on it are cached."""
        place = self._planned[trial.index]
        output = None if isinstance(place, str) else self._reader.result(place).result.output
        return None if output is None else output.text

    def _copied(self, end: AttemptResult, attempt: Attempt) -> dict[str, str]:
        """What the source kept of the answer, in the attempt's own folder; not of its graders."""
        copies: dict[str, str] = {}
        for name, path in end.artifacts.items():
            parts = PurePosixPath(path).parts[_ATTEMPT_DEPTH:]
            if not parts or (len(parts) == 1 and parts[0].startswith("grader")):
                continue
            copy = Path(attempt.folder, *parts)
            try:
                descriptor = open_plain_file(path, within=self.run.folder)
            except PlainFileError:
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(descriptor, "rb") as file, copy.open("wb") as written:
                shutil.copyfileobj(file, written)
            copies[name] = str(copy)
        return copies


def _limits_of_graders(plan: Plan) -> Limits:
    """With `auto`, a number: in a run, too, graders start whatever the machine is busy with."""
    if not plan.limits.auto:
        return plan.limits
    every = (one for spec in plan.grading.every for one in spec.flat())
    has_commands = any(one.kind == "command" for one in every)
    most = max(LEAST_COMMANDS, 2 * AUTO_MOST_PER_CORE * (os.cpu_count() or 1))
    parallel = min(most if has_commands else MOST_CALLS, max(1, len(plan.trials)))
    return replace(plan.limits, parallel=parallel, auto=False)


def _needs_files(spec: GraderSpec, functions: Functions) -> bool:
    if spec.kind != "python":
        return spec.kind == "command"
    return FunctionGrader(spec, functions=functions, threads=Threads()).wants_workspace


def _stored(target: Target) -> StoredTarget:
    if isinstance(target, ChatTarget):
        return StoredTarget()
    limits = TargetLimits() if isinstance(target, FunctionTarget) else target.limits
    return StoredTarget(limits=limits, fails_on=target.fails_on)


def _failure(end: AttemptResult) -> Failure:
    """The error of the source, which another attempt would not change."""
    error = end.error or Failure(kind=end.outcome, message="")
    message = error.message.removeprefix(f"{error.kind.value.replace('_', ' ')}{COUNTED_AS_FAILED}")
    return Failure(kind=error.kind, message=message, lasting=True)


def _is_cached(found: TrialResult) -> bool:
    """Whether its time is that of a cached answer. Errors have no answer, and targets that report
    no spending nothing to note it in."""
    return found.result.output is not None and found.spend not in (None, Spend())


def _from_before(found: TrialResult) -> Spend | None:
    """What an answer took, as of a cached one: nothing is spent now."""
    spend = found.spend
    if spend is None or spend == Spend():
        return spend
    return Spend(
        cached=max(1, spend.calls + spend.cached),
        cached_usd=spend.original_usd,
        cached_usage=spend.original_usage,
        cached_s=_answer_s(found) if _is_cached(found) else _saved_s(found),
    )


def _saved_s(found: TrialResult) -> float | None:
    spend = found.spend
    return spend.cached_s if spend is not None and spend.cached else 0.0


def _answer_s(found: TrialResult) -> float | None:
    saved_s = _saved_s(found)
    return None if saved_s is None else found.time_s + saved_s
