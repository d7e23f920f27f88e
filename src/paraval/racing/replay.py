"""A race as the store tells it: its course once more, with the results that there are."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path

from paraval.racing.course import Course
from paraval.racing.course_recorded import recorded_in
from paraval.racing.remembering import Beginning, recalled
from paraval.racing.signing import with_their_steps
from paraval.racing.source import RaceSource
from paraval.racing.standings import Standings
from paraval.records import RunInfo, Trial, TrialResult
from paraval.store.connection import RUN_FILE, explaining
from paraval.store.store import Store


def standings_of(store: Store, run: RunInfo) -> tuple[Beginning, Standings]:
    """How the candidates of a recorded race stand."""
    beginning = recalled(store.selection(run))
    with explaining(Path(run.folder, RUN_FILE), "the race"):
        # An engine that has just taken it up has named nothing: then it stands as it stood before.
        ends = store.last_ends(run) or with_their_steps(store.known_results(run))
        return beginning, replayed(beginning, ends)


def replayed(beginning: Beginning, ends: Mapping[str, TrialResult]) -> Standings:
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
