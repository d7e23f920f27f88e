"""A race as the store tells it: its course once more, with the results that there are."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from paraval.racing.course import Course
from paraval.racing.course_recorded import recorded_in
from paraval.racing.remembering import Beginning, recalled
from paraval.racing.signing import with_their_steps
from paraval.racing.source import RaceSource
from paraval.racing.standings import Standings
from paraval.records import RunInfo, Trial, TrialResult
from paraval.store.store import Store


def standings_of(store: Store, run: RunInfo) -> tuple[Beginning, Standings]:
    """How the candidates of a recorded race stand."""
    beginning = recalled(store.selection(run))
    return beginning, replayed(beginning, store.known_results(run))


def replayed(beginning: Beginning, known: Mapping[str, TrialResult]) -> Standings:
    """`known`: results by the keys of their trials."""
    request, base = beginning.request, beginning.base
    course = Course(
        request,
        base,
        beginning.proposals,
        hooks=beginning.hooks,
        recorded=recorded_in(with_their_steps(known)),
    )
    source = RaceSource(course, request, base, {})
    waiting: deque[Trial] = deque(source.begin())
    while waiting:
        trial = waiting.popleft()
        result = known.get(trial.key)
        if result is not None:
            waiting.extend(source.ended(trial, result))
    return course.standings()
