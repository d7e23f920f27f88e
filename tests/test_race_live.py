"""What is told of a race while it goes on is what its report tells, gone on with or not."""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

import pytest

from paraval.cli.progress.progress import ProgressView
from paraval.cli.progress.race_progress import Phase, RaceStory, choose_for_race
from paraval.codec import to_data
from paraval.racing.course.recorded import recorded_in
from paraval.racing.course.replay import RaceSource
from paraval.racing.course.steps import Step
from paraval.racing.report.race_words import speedup_cell
from paraval.racing.report.standings import Standings, Status
from paraval.racing.request import HookSpec, RaceRequest
from paraval.records import (
    Attempt,
    AttemptResult,
    AttemptStarted,
    Failure,
    Happening,
    Outcome,
    Output,
    RunEnded,
    RunInfo,
    RunStarted,
    Trial,
    TrialEnded,
    TrialResult,
)
from tests.race_world import BASE, Fate, World, course, request

RUN = RunInfo(
    id="run-1",
    suite="sort",
    source=None,
    folder="/store/runs/run-1",
    trials=0,
    parallel=2,
    seed=0,
    started_at=0.0,
    ended_at=None,
    wall_s=1.0,
    resumed=0,
    interrupted=False,
    fail_under=None,
)
FATES = {
    "slow": Fate(speed=0.8),
    "wrong": Fate(test=Outcome.FAILED, repairs=("mended",)),
    "same": Fate(tree="tree of fast", normal="normal of tree of fast"),
    "hangs": Fate(bench=Outcome.TIMEOUT),
    "fast": Fate(speed=1.5, noisy=True),
    "again": Fate(tree="tree of fast", normal="normal of tree of fast"),
    "mended": Fate(speed=1.4),
    "faster": Fate(speed=1.6),
}
GIVEN = tuple(name for name in FATES if name != "mended")


class Counts(RaceStory):
    """An onlooker who counts, and says nothing."""

    def __init__(self) -> None:
        super().__init__(ascii_only=True)
        self.phases: list[Phase] = []
        """Whenever a step began."""

    def __call__(self, event: Happening) -> None:
        self.tell(event)
        if isinstance(event, AttemptStarted):
            self.phases.append(self.phase)

    def tick(self, now: float) -> None: ...

    def close(self) -> None: ...


class LiveRace:
    """A real course in a world that answers at once, told to onlookers as the engine does."""

    def __init__(self, fates: Mapping[str, Fate], given: tuple[str, ...], seed: int = 0) -> None:
        self._world = World(fates=fates, seed=seed)
        self._asked: RaceRequest = request(hooks={"repair": HookSpec(command=("mend",))})
        self._given = given
        self.known: dict[str, TrialResult] = {}
        """By the keys of their trials: what engines have done so far."""

    def run(self, observer: ProgressView | Counts, most: int | None = None) -> Standings:
        """Another engine, which goes on from what is known; `most`: of steps, then it ends."""
        gone = course(self._asked, self._given, recorded_in(self.known))
        known, done = {**self.known}, len(self.known)
        source = own = RaceSource(gone, self._asked, BASE, {}, known=known, observer=observer)
        observer(RunStarted(run=RUN, total=done, already_done=done))
        out, left = deque[Trial](), most
        named = deque(source.begin())
        while left != 0:
            while named:
                trial = named.popleft()
                if trial.key in known:
                    named.extend(source.ended(trial, replace(known[trial.key], index=trial.index)))
                else:
                    out.append(trial)
            if not out:
                break
            trial = out.popleft()
            observer(AttemptStarted(attempt=Attempt(trial=trial, number=1, folder="/f")))
            result = self._result(own.steps[trial.index], trial)
            self.known[trial.key] = result
            named.extend(source.ended(trial, result))
            done, left = done + 1, None if left is None else left - 1
            total = done + len(out) + len(named)
            observer(TrialEnded(trial=trial, result=result, done=done, total=total, eta_s=None))
        if left != 0:
            # A kill tells nobody.
            observer(RunEnded(run=RUN))
        observer.close()
        return gone.standings()

    def _result(self, step: Step, trial: Trial) -> TrialResult:
        end = self._world.end(step)
        return TrialResult(
            index=trial.index,
            case_id=trial.case.id,
            variant=trial.variant,
            repeat=trial.repeat,
            result=AttemptResult(
                outcome=end.outcome,
                output=Output(metadata={"race": to_data(end.finding)}),
                error=Failure(kind=end.outcome, message=end.reason) if end.reason else None,
                artifacts=end.artifacts,
            ),
            attempts=1,
        )


def lines_of(race: LiveRace, most: int | None = None) -> tuple[list[str], Standings]:
    stream = io.StringIO()
    standings = race.run(choose_for_race("lines", stream, False, environ={}), most)
    return stream.getvalue().splitlines(), standings


def speeds_in(lines: list[str]) -> dict[str, tuple[str, int, bool]]:
    """The last of each candidate: its cell, its blocks, whether it is noisy."""
    told = {}
    for line in lines:
        if found := re.fullmatch(r"· (\S+) +(.*) after (\d+) (?:fresh )?blocks(.*)", line):
            told[found[1]] = (found[2], int(found[3]), "noisy" in found[4])
    return told


def speeds_reported(standings: Standings) -> dict[str, tuple[str, int, bool]]:
    return {
        one.name: (speedup_cell(one.speedup), one.speedup.blocks, one.noisy)
        for one in standings.candidates
        if one.speedup is not None and one.status not in (Status.TIMEOUT, Status.CRASHED)
    }


def test_the_last_speeds_that_are_told_are_those_of_the_report() -> None:
    lines, standings = lines_of(LiveRace(FATES, GIVEN))
    assert standings.winner == "faster"
    assert len(speeds_in(lines)) == 4
    assert speeds_in(lines) == speeds_reported(standings)


@pytest.mark.parametrize("killed_after", range(1, 90, 2))
def test_a_race_that_is_gone_on_with_tells_the_speeds_of_its_report(killed_after: int) -> None:
    race = LiveRace(FATES, GIVEN)
    before, _ = lines_of(race, killed_after)
    after, standings = lines_of(race)
    told = {**speeds_in(before), **speeds_in(after)}
    assert told == speeds_reported(standings)
    # What was told is not told again, and nothing is left out.
    whole, _ = lines_of(LiveRace(FATES, GIVEN))
    once = [line for line in whole if "·" not in line]
    assert sorted(_told_of(before) + _told_of(after)) == sorted(_told_of(once))


def _told_of(lines: list[str]) -> list[str]:
    """Without what measurements say, and without padding."""
    return [" ".join(line.split()) for line in lines if not line.startswith("·")]


@pytest.mark.parametrize("killed_after", [0, *range(9, 18)])
def test_a_round_is_as_long_as_it_is_said_to_be_from_its_first_block_on(killed_after: int) -> None:
    """The first one is named in two parts: a block of each, then the rest."""
    race = LiveRace(dict.fromkeys("abc", Fate(speed=2.0)), ("a", "b", "c"))
    if killed_after:
        lines_of(race, killed_after)
    story = Counts()
    race.run(story)
    told = [(one.done, one.total) for one in story.phases if one.word == "measuring"]
    blocks = 9 if killed_after < 9 else 18 - killed_after
    # What is left is not known before the first step of an engine has ended.
    first = (0, 9) if killed_after < 9 else (0, 0)
    assert told == [first, *((done, blocks) for done in range(1, blocks))]


@pytest.mark.parametrize("killed_after", [0, 9, 30])
def test_the_counts_of_a_race_that_is_gone_on_with_are_of_all_its_candidates(
    killed_after: int,
) -> None:
    race = LiveRace(FATES, GIVEN)
    lines_of(race, killed_after)
    story = Counts()
    race.run(story)
    assert (story.passed, story.failed, story.errors) == (5, 1, 1)
