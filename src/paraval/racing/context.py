"""What the steps of a race need, how their results are made, and who performs which.

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
from paraval.racing.findings import StepFinding
from paraval.racing.request import BASELINE_TIMEOUT_S, RaceRequest, usual_timeout
from paraval.racing.steps import (
    BASELINE,
    ELAPSED,
    FINDING,
    MEASURED_ON,
    ROUNDS_NEED,
    TIME_NEED,
    Base,
    Step,
    StepEnd,
    StepKind,
)
from paraval.racing.verdicts import LEAST_FINALISTS, PROCESSES_OF_A_BLOCK, final_blocks
from paraval.records import Attempt, AttemptResult, CommandTarget, Failure, Outcome, Output, Spend
from paraval.scratch import OwnHome
from paraval.targets.command import ProcessRoom, attempt_marks, own_places
from paraval.text.words import duration
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
    function: Callable[..., Any] | None = None
    """A Python function that proposes candidates."""
    say: Callable[[str], None] = lambda _words: None
    """Shows a message to the user."""
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

    def finals_s(self) -> float:
        """How long the finals of two candidates take."""
        end = self.ends.get((StepKind.CALIBRATE, BASELINE, 1))
        calibration = None if end is None else end.finding.calibration
        process_s = 0.0 if calibration is None else calibration.process_s
        blocks = final_blocks(self.request.bench, process_s, LEAST_FINALISTS)
        return LEAST_FINALISTS * blocks * PROCESSES_OF_A_BLOCK * process_s

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


def failed(
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


def with_timeout(attempt: Attempt, timeout: float) -> Attempt:
    """The attempt with another timeout of its command."""
    target = attempt.trial.target
    assert isinstance(target, CommandTarget)
    trial = replace(attempt.trial, target=replace(target, timeout=timeout))
    return replace(attempt, trial=trial)


class RacePerformer:
    """Called by the driver: finds the performer of a step, and makes paths relative."""

    def __init__(
        self,
        context: RaceContext,
        performers: Mapping[StepKind, StepPerformer],
        steps: Mapping[int, Step],
        elapsed_s: Callable[[], float],
    ) -> None:
        """`steps`: by trial index; grows during the race. `elapsed_s`: race time so far, over all
        engines."""
        self._context = context
        self._performers = performers
        self._steps = steps
        self._elapsed_s = elapsed_s

    async def perform(self, attempt: Attempt) -> AttemptResult:
        step = self._steps[attempt.trial.index]
        limit_s = self._context.request.limits.seconds
        is_of_round = step.kind is StepKind.SCREEN
        reserved_s = self._context.finals_s() if is_of_round else 0.0
        if limit_s is not None and self._elapsed_s() + reserved_s >= limit_s:
            need = ROUNDS_NEED if is_of_round else TIME_NEED
            return self._with_metadata(_too_late(limit_s, need), {})
        try:
            result = await self._performers[step.kind].perform(attempt, step)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not affect other candidates
            result = _our_own_bug(error)
        artifacts = self._context.relative(result.artifacts)
        result = replace(result, artifacts=artifacts, node=attempt.node)
        is_here = step.kind.is_measurement and self._context.nodes is not None
        return self._with_metadata(result, {MEASURED_ON: socket.gethostname()} if is_here else {})

    def _with_metadata(self, result: AttemptResult, more: Mapping[str, Any]) -> AttemptResult:
        output = result.output or Output()
        metadata = {**output.metadata, ELAPSED: self._elapsed_s(), **more}
        return replace(result, output=replace(output, metadata=metadata))

    def forget(self, index: int) -> None:
        """Do nothing: no state is kept between attempts."""

    def kill(self) -> None:
        self._context.processes.warden.kill_all()
        if self._context.nodes is not None:
            self._context.nodes.kill()

    async def close(self) -> None:
        for performer in {id(one): one for one in self._performers.values()}.values():
            await performer.close()


def _too_late(limit_s: float, need: str) -> AttemptResult:
    """Skip it, and all others that need the same, until a resume with more time."""
    words = f"{limit_s:g} s" if limit_s < 60 else duration(limit_s)
    failure = Failure(
        kind=Outcome.INFRA_ERROR,
        message=f"the time limit of {words} was reached before its turn",
        stops=need,
    )
    # A call that was not made has spent nothing.
    return AttemptResult(outcome=failure.kind, error=failure, spend=Spend())


def _our_own_bug(error: Exception) -> AttemptResult:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return failed(
        Outcome.INFRA_ERROR,
        f"a bug in paraval, please report it: {type(error).__name__}: {error} "
        f"({Path(last.filename).name}:{last.lineno})",
    )
