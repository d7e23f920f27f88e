"""Performs steps, each kind by its own performer.

A performer never raises for what a candidate, a program or a workspace does: that is a result. A
bug in paraval becomes a result here too, so that it only ends one step.
"""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from paraval.codec import to_data
from paraval.dataclass import dataclass
from paraval.environment import child_environment
from paraval.models.requests import ModelClient
from paraval.plain_files import is_plain_file
from paraval.processes.children import Command
from paraval.racing.course.recorded import RaceTime
from paraval.racing.course.steps import (
    BASELINE,
    ELAPSED,
    FINDING,
    MEASURED_ON,
    SIGNATURE,
    TIME_NEED,
    Base,
    Step,
    StepEnd,
    StepKind,
)
from paraval.racing.findings import Proposal, StepFinding
from paraval.racing.integrity.user_repo import RepoWatch
from paraval.racing.request import BASELINE_TIMEOUT_S, RaceRequest, usual_timeout
from paraval.records import Attempt, AttemptResult, CommandTarget, Failure, Outcome, Output, Spend
from paraval.scratch import OwnHome
from paraval.targets.command import ProcessRoom, attempt_marks, own_places
from paraval.workspaces.pool import Pool

if TYPE_CHECKING:
    from paraval.runner.cluster.nodes import Cluster

Ends = dict[tuple[StepKind, str, int], StepEnd]
"""Step ends so far, by kind, candidate and number, including those of earlier engines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceContext:
    """What the steps of a race need."""

    request: RaceRequest
    base: Base
    processes: ProcessRoom
    workspaces: Pool
    objects: Path
    """The folder of candidates' trees, in the run's folder: loose git objects."""
    run_folder: Path
    ends: Ends = field(default_factory=dict)
    """Filled as steps end, so that performers can read earlier findings."""
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Python functions for generate, repair and refine."""
    propose: Callable[[Step, tuple[Proposal, ...]], None] = lambda _step, _proposals: None
    """Called by a running hook, so that its proposals join the race immediately."""
    say: Callable[[str], None] = lambda _words: None
    """Shows a message to the user."""
    outside: RepoWatch | None = None
    """Watches the user's repository for changes; None if it is not watched."""
    models: ModelClient | None = None
    """Calls the models that write candidates; None: there are none."""
    nodes: Cluster | None = None
    """Where attempts run that have a node; None: there is no cluster."""

    def artifact(self, end: StepEnd, name: str) -> Path | None:
        """The absolute path of an artifact; None if it is not in the run's folder."""
        path = end.artifacts.get(name)
        if path is None or not is_plain_file(path, within=str(self.run_folder)):
            return None
        return self.run_folder / path

    def baseline_test_s(self) -> float:
        """How long the baseline's tests took, the longer run of two."""
        took = [
            end.duration_s
            for (kind, name, _), end in self.ends.items()
            if kind is StepKind.TEST and name == BASELINE
        ]
        return max(took, default=0.0)

    def bench_timeout(self) -> float:
        """For a process of a candidate's benchmark."""
        if self.request.bench.timeout is not None:
            return self.request.bench.timeout
        end = self.ends.get((StepKind.CALIBRATE, BASELINE, 1))
        calibration = None if end is None else end.finding.calibration
        return BASELINE_TIMEOUT_S if calibration is None else usual_timeout(calibration.process_s)

    def relative(self, artifacts: Mapping[str, str]) -> Mapping[str, str]:
        """Make paths relative to the run's folder, so that it can be moved."""
        return {name: os.path.relpath(path, self.run_folder) for name, path in artifacts.items()}


class StepPerformer(Protocol):
    """Performs one or more kinds of steps."""

    async def perform(self, attempt: Attempt, step: Step) -> AttemptResult:
        """Perform a step. Artifact paths are absolute."""
        ...

    async def close(self) -> None:
        """Release resources. Called once, when all steps have ended."""
        ...


def found(finding: StepFinding, outcome: Outcome = Outcome.PASSED, **more: Any) -> AttemptResult:
    """The result of a step that found something; `more`: other fields of the result."""
    output = Output(metadata={FINDING: to_data(finding)})
    return AttemptResult(outcome=outcome, output=output, **more)


def broke(
    outcome: Outcome, message: str, *, finding: StepFinding | None = None, **more: Any
) -> AttemptResult:
    """The result of a step that failed; `finding`: what it found anyway."""
    output = None if finding is None else Output(metadata={FINDING: to_data(finding)})
    lasting: bool = more.pop("lasting", False)
    error = Failure(kind=outcome, message=message, lasting=lasting)
    return AttemptResult(outcome=outcome, output=output, error=error, **more)


def step_command(
    processes: ProcessRoom, attempt: Attempt, own: OwnHome | None, **more: Any
) -> Command:
    """The command of a step's target, in its worktree if it has one; `more`: additional or changed
    fields."""
    target = attempt.trial.target
    assert isinstance(target, CommandTarget)
    command = Command(
        argv=target.command,
        env=child_environment(
            {**own_places(own, target.home), **target.env},
            target.pass_env,
            attempt_marks(processes.run_id, attempt),
        ),
        cwd=attempt.workspace or target.cwd,
        stdout=f"{attempt.folder}/stdout.log",
        stderr=f"{attempt.folder}/stderr.log",
        timeout=target.timeout,
        grace=target.grace,
        limits=target.limits,
        nice=processes.nice,
        tag=attempt.trial.index,
        sandbox=processes.sandbox_for(attempt, own),
    )
    return replace(command, **more)


def within(attempt: Attempt, timeout: float) -> Attempt:
    """The attempt with another timeout of its command."""
    target = attempt.trial.target
    assert isinstance(target, CommandTarget)
    trial = replace(attempt.trial, target=replace(target, timeout=timeout))
    return replace(attempt, trial=trial)


class RacePerformer:
    """Called by the driver: finds the performer of a step, and makes paths relative."""

    def __init__(
        self,
        room: RaceContext,
        performers: Mapping[StepKind, StepPerformer],
        steps: Mapping[int, Step],
        elapsed_s: Callable[[], float],
    ) -> None:
        """`steps`: by trial index; grows during the race. `elapsed_s`: race time so far, over all
        engines."""
        self._room = room
        self._performers = performers
        self._steps = steps
        self._elapsed_s = elapsed_s

    async def perform(self, attempt: Attempt) -> AttemptResult:
        step = self._steps[attempt.trial.index]
        # The store only has the keys of results, and a resume issues new trials.
        signature = {"kind": step.kind.value, "case": attempt.trial.case.id, "number": step.number}
        if step.kind.is_timed and self._is_late:
            return _with_metadata(self._too_late(), {SIGNATURE: signature})
        try:
            result = await self._watched(attempt, step)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not affect other candidates
            result = _our_own_bug(error)
        artifacts = self._room.relative(result.artifacts)
        result = replace(result, artifacts=artifacts, node=attempt.node)
        told = {ELAPSED: self._elapsed_s(), SIGNATURE: signature}
        if step.kind.is_exclusive and self._room.nodes is not None:
            told[MEASURED_ON] = socket.gethostname()
        return _with_metadata(result, told)

    @property
    def _is_late(self) -> bool:
        limit_s = self._room.request.limits.seconds
        return limit_s is not None and self._elapsed_s() >= limit_s

    def _too_late(self) -> AttemptResult:
        """Skip it, and all others that wait like it, until a resume with more time."""
        failure = Failure(
            kind=Outcome.INFRA_ERROR,
            message=RaceTime(self._room.request.limits.seconds).why_skipped,
            stops=TIME_NEED,
        )
        # A hook that was not called has spent nothing.
        return AttemptResult(outcome=failure.kind, error=failure, spend=Spend())

    async def _watched(self, attempt: Attempt, step: Step) -> AttemptResult:
        """The step's result, with what changed outside while it ran a candidate's code."""
        performer, outside = self._performers[step.kind], self._room.outside
        # What runs on a node cannot reach it.
        is_away = attempt.node is not None
        if outside is None or is_away or step.kind is StepKind.STAGE or step.kind.is_hook:
            return await performer.perform(attempt, step)
        index = attempt.trial.index
        outside.started(index)
        try:
            result = await performer.perform(attempt, step)
        except BaseException:
            outside.forget(index)
            raise
        changed = await outside.ended(index)
        return _with_outside(result, changed) if changed else result

    def forget(self, index: int) -> None:
        """Do nothing: no state is kept between attempts."""

    def kill(self) -> None:
        self._room.processes.warden.kill_all()
        if self._room.nodes is not None:
            self._room.nodes.kill()

    async def close(self) -> None:
        for performer in {id(one): one for one in self._performers.values()}.values():
            await performer.close()


def _with_outside(result: AttemptResult, changed: tuple[str, ...]) -> AttemptResult:
    finding = {} if result.output is None else result.output.metadata.get(FINDING, {})
    return _with_metadata(result, {FINDING: {**finding, "outside": changed}})


def _with_metadata(result: AttemptResult, more: Mapping[str, Any]) -> AttemptResult:
    output = result.output or Output()
    return replace(result, output=replace(output, metadata={**output.metadata, **more}))


def _our_own_bug(error: Exception) -> AttemptResult:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return broke(
        Outcome.INFRA_ERROR,
        f"a bug in paraval, please report it: {type(error).__name__}: {error} "
        f"({Path(last.filename).name}:{last.lineno})",
    )
