"""What is seen of a race while it goes on: a bar with its phase, lines in a log, or JSON."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from paraval.cli.progress.bar import GREEN, RED, YELLOW, Bar
from paraval.cli.progress.counts import MachineRoom, RunningTrials, Skips
from paraval.cli.progress.lines import (
    LONGEST_LABEL,
    LONGEST_NOTICE,
    LONGEST_REASON,
    QUIET_S,
    Pen,
    ProgressLines,
    shown_label,
)
from paraval.cli.progress.progress import ProgressObserver, choose
from paraval.cli.progress.race_story import RaceStory
from paraval.records import (
    AttemptEnded,
    AttemptStarted,
    Capacity,
    Happening,
    Notice,
    RunEnded,
    RunStarted,
    Trial,
    TrialEnded,
    TrialResult,
    TrialSkipped,
)
from paraval.text.terminal import one_line
from paraval.text.words import counted, duration, reason, rough_time


def choose_for_race(
    mode: str,
    stream: TextIO,
    verbose: bool,
    *,
    confidence: float = 0.95,
    clock: Callable[[], float] = time.monotonic,
    environ: Mapping[str, str] | None = None,
) -> ProgressObserver:
    """The onlooker for a mode, as `progress.choose` has them; `confidence`: of intervals."""
    chosen = choose(mode, stream, verbose, clock=clock, environ=environ)
    pen = Pen(stream)
    story = RaceStory(ascii_only=pen.is_ascii, confidence=confidence)
    if isinstance(chosen, Bar):
        colour = not (os.environ if environ is None else environ).get("NO_COLOR")
        return RaceBar(pen, story, verbose=verbose, colour=colour, clock=clock)
    if isinstance(chosen, ProgressLines):
        return RaceLines(pen, story, verbose=verbose, clock=clock)
    return chosen


class RaceBar(Bar):
    """The bar of a phase, how many candidates passed, and what runs now."""

    def __init__(
        self,
        pen: Pen,
        story: RaceStory,
        *,
        verbose: bool,
        colour: bool,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(pen, verbose=verbose, colour=colour, clock=clock)
        self._story = story
        self._began_at = clock()

    def __call__(self, event: Happening) -> None:
        if isinstance(event, RunStarted):
            self._began_at = self._clock()
        if not isinstance(event, TrialEnded):
            # Before the block is taken away; of trials that ended, `_count` tells.
            self._tell(event)
        super().__call__(event)

    def recall(self, trial: Trial, result: TrialResult) -> None:
        """What an earlier engine of the race did."""
        self._story.recall(trial, result)
        self._follow()

    def _begin(self, event: RunStarted) -> None:
        super()._begin(event)
        self._follow()

    def _count(self, event: TrialEnded) -> None:
        self._running.end(event.trial)
        self._eta_s = event.eta_s
        self._tell(event)

    def _tell(self, event: Happening) -> None:
        for line in self._story.tell(event):
            # Who passed is counted, and the report names them.
            if self._verbose or line.mark != "passed":
                self._say(line.text)
        self._follow()

    def _follow(self) -> None:
        phase = self._story.phase
        self._done, self._total = (phase.done, phase.total) if phase.total else (0, 1)

    def _count_parts(self) -> list[tuple[str, str]]:
        story = self._story
        parts = [
            (str(story.phase), ""),
            (f"{story.passed:,} passed", GREEN if story.passed else ""),
            (f"{story.failed:,} failed", RED if story.failed else ""),
        ]
        if story.errors:
            parts.append((counted(story.errors, "error"), YELLOW))
        parts.append((rough_time(self._clock() - self._began_at), ""))
        if self._eta_s is not None and self._done < self._total:
            parts.append((f"ETA {rough_time(self._eta_s)}", ""))
        if spent := str(self._spending):
            parts.append((spent, ""))
        return parts


class RaceLines:
    """A line for each thing that a person cares about, and one a minute when there is none."""

    def __init__(
        self, pen: Pen, story: RaceStory, *, verbose: bool, clock: Callable[[], float]
    ) -> None:
        self._pen = pen
        self._story = story
        self._verbose = verbose
        self._clock = clock
        self._running = RunningTrials()
        self._room = MachineRoom()
        self._skips = Skips()
        self._last_line_at = clock()
        self._goes_on = False

    def __call__(self, event: Happening) -> None:
        for line in self._story.tell(event):
            self._say(line.text)
        match event:
            case TrialEnded():
                self._running.end(event.trial)
            case TrialSkipped():
                self._running.end(event.trial)
                if self._skips.is_first(event.reason, self._clock()):
                    why = one_line(event.reason, LONGEST_REASON)
                    self._say(f"{shown_label(event.trial)}  skipped: {why}")
            case AttemptStarted():
                self._running.begin(event.attempt.trial, self._clock())
                if self._verbose:
                    self._say(f"  {shown_label(event.attempt.trial)} begins")
            case AttemptEnded():
                self._running.end(event.attempt.trial)
                self._say(_again(event))
            case Capacity():
                self._room.watch(event, self._clock())
            case Notice():
                self._say(one_line(event.message, LONGEST_NOTICE))
            case RunStarted():
                self._last_line_at = self._clock()
                self._goes_on = True
            case RunEnded():
                self.close()

    def recall(self, trial: Trial, result: TrialResult) -> None:
        """What an earlier engine of the race did."""
        self._story.recall(trial, result)

    def tick(self, now: float) -> None:
        self._say_more_skipped(now)
        if self._goes_on and now - self._last_line_at >= QUIET_S:
            self._say(self._alive(now))

    def close(self) -> None:
        self._goes_on = False
        self._say_more_skipped(math.inf)

    def _alive(self, now: float) -> str:
        longest = self._running.longest(now)
        if longest is None:
            return f"… {self._story.phase}: nothing runs just now, and the race waits"
        trial, for_s = longest
        return (
            f"… {self._story.phase}: {len(self._running)} running{self._room}, "
            f"longest {shown_label(trial)} for {rough_time(for_s)}"
        )

    def _say_more_skipped(self, now: float) -> None:
        for number, why in self._skips.take(now):
            self._say(f"{number:,} more skipped: {one_line(why, LONGEST_LABEL)}")

    def _say(self, line: str) -> None:
        self._pen.line(line)
        self._last_line_at = self._clock()


def _again(event: AttemptEnded) -> str:
    """It is told in any log: a step that fails for no fault of its candidate is worth a look."""
    why = one_line(reason(event.result), LONGEST_REASON)
    outcome = event.result.outcome.value
    told = outcome if why in ("", outcome) else f"{outcome}: {why}"
    return f"{shown_label(event.attempt.trial)}  {told}; again in {duration(event.retry_in_s)}"
