"""Connects the course and the engine: steps become trials, results become step ends. Also replays
stored races.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from paraval.racing.course.course import Course
from paraval.racing.course.recorded import recorded_in, with_their_steps
from paraval.racing.course.steps import MEASURED_ON, Base, Step, end_of, trial_of
from paraval.racing.findings import Proposal
from paraval.racing.report.standings import Standings
from paraval.racing.request import RaceRequest
from paraval.racing.step_performer import Ends
from paraval.racing.stored_race import RaceStart, recalled
from paraval.records import RunInfo, Trial, TrialResult
from paraval.store.connection import RUN_FILE, explaining
from paraval.store.store import Store


@runtime_checkable
class Recalls(Protocol):
    """An observer that also wants the steps of earlier engines."""

    def recall(self, trial: Trial, result: TrialResult) -> None:
        """Take a step of an earlier engine. Must be quick and never raise."""
        ...


class RaceSource:
    """Issues the trials of a race as its course decides; an execute.source.Source."""

    def __init__(
        self,
        course: Course,
        request: RaceRequest,
        base: Base,
        ends: Ends,
        *,
        known: Collection[str] = (),
        observer: object = None,
    ) -> None:
        """`known`: keys of results of earlier engines. An observer with `recall` gets them as the
        course reaches them."""
        self._course = course
        self._request = request
        self._base = base
        self._ends = ends
        self._known = known
        self._recalls = observer if isinstance(observer, Recalls) else None
        self.steps: dict[int, Step] = {}
        """Steps by trial index."""

    def begin(self) -> Sequence[Trial]:
        return self._trials(self._course.begin())

    def ended(self, trial: Trial, result: TrialResult) -> Sequence[Trial]:
        if self._recalls is not None and trial.key in self._known:
            self._recalls.recall(trial, result)
        step = self.steps[trial.index]
        end = end_of(step, result)
        self._ends[step.kind, step.candidate, step.number] = end
        return self._trials(self._course.handle(end, end.elapsed_s))

    def skipped(self, trial: Trial, reason: str) -> Sequence[Trial]:
        return self._trials(self._course.skipped(self.steps[trial.index], reason))

    def proposed(self, step: Step, proposals: Sequence[Proposal]) -> Sequence[Trial]:
        """Add proposals of a running hook."""
        return self._trials(self._course.proposed(step, proposals))

    def _trials(self, steps: Sequence[Step]) -> list[Trial]:
        trials = []
        for step in steps:
            index = len(self.steps)
            self.steps[index] = step
            trials.append(trial_of(step, index, self._request, self._base))
        return trials


def standings_of(store: Store, run: RunInfo) -> tuple[RaceStart, Standings]:
    """The standings of a recorded race."""
    beginning = recalled(store.selection(run))
    with explaining(Path(run.folder, RUN_FILE), "the race"):
        # An engine that has just resumed it has issued nothing yet: show the standings before that.
        ends = store.last_ends(run) or with_their_steps(store.known_results(run))
        return beginning, _with_machines(replayed(beginning, ends), ends)


def _with_machines(standings: Standings, ends: Mapping[str, TrialResult]) -> Standings:
    """With where its steps ran, if it had a cluster."""
    results = [end.result for end in ends.values()]
    told = [one.output.metadata.get(MEASURED_ON) for one in results if one.output is not None]
    nodes = sorted({one.node for one in results if one.node is not None})
    hosts = sorted({host for host in told if isinstance(host, str)})
    return replace(standings, nodes=tuple(nodes), measured_on=tuple(hosts))


def replayed(beginning: RaceStart, ends: Mapping[str, TrialResult]) -> Standings:
    """Replay a race from `ends`, by trial key. Steps left for later are skipped, as they were."""
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
