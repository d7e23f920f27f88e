"""A race as the store tells it: its course once more, with the results that there are."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.execute.driver import Performer
from paraval.racing.course.course import Course
from paraval.racing.course.recorded import recorded_in
from paraval.racing.course.steps import STEP, Base, Step, end_of, trial_of
from paraval.racing.findings import Proposal
from paraval.racing.report.standings import Standings
from paraval.racing.request import RaceRequest
from paraval.racing.step_performer import Ends
from paraval.racing.stored_race import RaceStart, recalled
from paraval.records import Attempt, AttemptResult, Output, RunInfo, Trial, TrialResult
from paraval.store.connection import RUN_FILE, explaining
from paraval.store.store import Store

# Between the course and the engine: steps become trials, results become ends of steps.


class RaceSource:
    """Names the trials of a race, as its course decides; an execute.source.Source."""

    def __init__(self, course: Course, request: RaceRequest, base: Base, ends: Ends) -> None:
        self._course = course
        self._request = request
        self._base = base
        self._ends = ends
        self.steps: dict[int, Step] = {}
        """By the index of their trials."""

    def begin(self) -> Sequence[Trial]:
        return self._trials(self._course.begin())

    def ended(self, trial: Trial, result: TrialResult) -> Sequence[Trial]:
        step = self.steps[trial.index]
        end = end_of(step, result)
        self._ends[step.kind, step.candidate, step.number] = end
        return self._trials(self._course.handle(end, end.elapsed_s))

    def skipped(self, trial: Trial, reason: str) -> Sequence[Trial]:
        return self._trials(self._course.skipped(self.steps[trial.index], reason))

    def proposed(self, step: Step, proposals: Sequence[Proposal]) -> Sequence[Trial]:
        """By a hook that still runs."""
        return self._trials(self._course.proposed(step, proposals))

    def _trials(self, steps: Sequence[Step]) -> list[Trial]:
        trials = []
        for step in steps:
            index = len(self.steps)
            self.steps[index] = step
            trials.append(trial_of(step, index, self._request, self._base))
        return trials


# Results that say of which step they are: a store knows them by their keys alone.

SIGNATURE = "step"
"""Where in an output's metadata it is."""


class SigningPerformer:
    """Performs attempts as another performer does, and signs their results; a Performer."""

    def __init__(self, performer: Performer) -> None:
        self._performer = performer

    async def perform(self, attempt: Attempt) -> AttemptResult:
        result = await self._performer.perform(attempt)
        trial, output = attempt.trial, result.output or Output()
        signature = {
            "kind": trial.variant[STEP],
            "case": trial.case.id,
            "number": trial.repeat,
        }
        metadata = {**output.metadata, SIGNATURE: signature}
        return replace(result, output=replace(output, metadata=metadata))

    def forget(self, index: int) -> None:
        self._performer.forget(index)

    def kill(self) -> None:
        self._performer.kill()


def with_their_steps(known: Mapping[str, TrialResult]) -> dict[str, TrialResult]:
    """Those that are signed, with their case, variant and number again; by key, as they came."""
    return {
        key: replace(
            result,
            case_id=signature["case"],
            variant={STEP: signature["kind"]},
            repeat=signature["number"],
        )
        for key, result in known.items()
        if (signature := _signature_in(result)) is not None
    }


def _signature_in(result: TrialResult) -> Mapping[str, Any] | None:
    output = result.result.output
    return None if output is None else output.metadata.get(SIGNATURE)


def standings_of(store: Store, run: RunInfo) -> tuple[RaceStart, Standings]:
    """How the candidates of a recorded race stand."""
    beginning = recalled(store.selection(run))
    with explaining(Path(run.folder, RUN_FILE), "the race"):
        # An engine that has just taken it up has named nothing: then it stands as it stood before.
        ends = store.last_ends(run) or with_their_steps(store.known_results(run))
        return beginning, replayed(beginning, ends)


def replayed(beginning: RaceStart, ends: Mapping[str, TrialResult]) -> Standings:
    """`ends`: by the keys of their trials; what was left for later is skipped, as it was then."""
    request, base = beginning.request, beginning.base
    course = Course(
        request,
        base,
        beginning.proposals,
        hooks=beginning.hooks,
        recorded=recorded_in(ends),
    )
    source = RaceSource(course, request, base, {})
    waiting: deque[Trial] = deque(source.begin())
    while waiting:
        trial = waiting.popleft()
        result = ends.get(trial.key)
        if result is not None:
            waiting.extend(source.ended(trial, result))
    return course.standings()
