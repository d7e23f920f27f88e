"""Shows a run while it is running: as a bar, as lines, or as JSON.

`RunProgress` receives every Happening and, several times a second, the time. It counts, and passes
lines and rows to a `Display`; a race's words are in `race_progress`. Results are left to the
report.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from paraval.cli.error_messages import talk
from paraval.cli.options import PROGRESS_MODES
from paraval.cli.progress.json_events import JsonEvents
from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.records import (
    SETUP_REMOVED,
    SETUP_UNDONE,
    Attempt,
    AttemptEnded,
    AttemptResult,
    AttemptStarted,
    Capacity,
    Happening,
    HeldBack,
    Notice,
    Outcome,
    RunEnded,
    RunStarted,
    Trial,
    TrialEnded,
    TrialResult,
    TrialSkipped,
    Wait,
)
from paraval.report.reasons import reason
from paraval.runner.live import Spending
from paraval.runner.session import NullObserver
from paraval.text.progress import Display, Running, eta, fit, place, shows_rows
from paraval.text.tables import Page
from paraval.text.terminal import columns, one_line
from paraval.text.words import counted, duration, rough_time, some

if TYPE_CHECKING:
    from paraval.report.report import Report

LOG_EVERY_S = 10.0
"""How often a log says how the run goes."""
SAME_WAIT_EVERY_S = 60.0
TIME_WIDTH = len("9 min 59 s")
LONGEST_LABEL = 60
LONGEST_REASON = 160
LONGEST_NOTICE = 1000
LONGEST_NODE = 30
MOST_NODES = 8
LONGEST_BAR = 40
SHORTEST_BAR = 8
GREEN, RED, YELLOW, DIM, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"

MARKS = {
    "passed": "✓",
    "failed": "✗",
    "error": "!",
    "skipped": "–",
    "start": "→",
    "again": "↻",
    "new": "→",
}
ASCII_MARKS = {
    "passed": "ok  ",
    "failed": "FAIL",
    "error": "ERR ",
    "skipped": "skip",
    "start": "run ",
    "again": "redo",
    "new": "new ",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutput:
    """How a run is shown, and where its report is written."""

    progress: str = "auto"
    verbose: bool = False
    outputs: tuple[Path, ...] = ()
    text: Callable[[Report, Page], str] | None = None
    """What is printed at the end; None: the report."""

    @classmethod
    def from_options(cls, given: dict[str, Any]) -> RunOutput:
        return cls(
            progress=given["progress"],
            verbose=given["verbose"],
            outputs=tuple(path.absolute() for path in given["outputs"]),
        )


@contextmanager
def shown_by(view: ProgressView) -> Iterator[ProgressView]:
    """Close the view at the end, and print an empty line after what it showed."""
    try:
        yield view
    finally:
        view.close()
    if isinstance(view, RunProgress):
        talk("")


def choose(
    mode: str,
    stream: TextIO,
    verbose: bool,
    *,
    clock: Callable[[], float] = time.monotonic,
    environ: Mapping[str, str] | None = None,
    shown_as: Callable[..., RunProgress] | None = None,
) -> ProgressView:
    """The view for a mode: `auto` is a bar on a terminal that can show one, else lines.

    `shown_as`: how bars and lines are worded; None: as of a suite.
    """
    if mode not in PROGRESS_MODES:
        raise RequestError(
            f"unknown progress mode '{mode}'", hint=f"use one of {', '.join(PROGRESS_MODES)}"
        )
    environ = os.environ if environ is None else environ
    if mode == "none":
        return NullObserver()
    if mode == "json":
        return JsonEvents(stream)
    display = Display(stream, is_live=_shows_bar(mode, stream, environ), clock=clock)
    is_colored = not environ.get("NO_COLOR")
    return (shown_as or RunProgress)(display, verbose=verbose, color=is_colored, clock=clock)


def can_show_bar(stream: TextIO) -> bool:
    """Whether `auto` shows a bar on this stream."""
    return _shows_bar("auto", stream, os.environ)


def _shows_bar(mode: str, stream: TextIO, environ: Mapping[str, str]) -> bool:
    if mode == "lines" or not shows_rows(environ):
        return False
    try:
        is_terminal = stream.isatty()
    except ValueError:  # The stream is closed.
        return False
    # CI services provide a terminal, but keep a log of it.
    return is_terminal and (mode == "bar" or not environ.get("CI"))


class CountPart(NamedTuple):
    """A part of the row of counts, and its color."""

    text: str
    color: str = ""


class RunProgress:
    """Shows a run on a display: as lines, or as a bar with counts and what is running.

    Only what did not pass gets a line of its own; a log gets a line with the counts every ten
    seconds.
    """

    def __init__(
        self, display: Display, *, verbose: bool, color: bool, clock: Callable[[], float]
    ) -> None:
        self._display = display
        self._verbose = verbose
        self._color = color
        self._clock = clock
        self._marks = ASCII_MARKS if display.is_ascii else MARKS
        self._numbers = Counter[str]()
        """Trials by the mark of how they ended."""
        self._position = (0, 0)
        """How many are done, and how many there are."""
        self._running = Running[Trial]()
        self._nodes = Counter[str]()
        """Running attempts, by node of a cluster."""
        self._capacity: Capacity | None = None
        self._waits: tuple[Wait, ...] = ()
        """What holds trials back."""
        self._waits_logged: dict[str, float] = {}
        """When a log last named each of them."""
        self._skips = Counter[str]()
        """By reason: those that were not named."""
        self._spending = Spending()
        self._tells_setup = True
        self._eta_s: float | None = None
        self._began_at = self._logged_at = clock()

    def __call__(self, event: Happening) -> None:
        now = self._clock()
        self._spending.watch(event)
        match event:
            case RunStarted():
                self._began_at = self._logged_at = now
                self._position = (event.already_done, event.total)
                self._display.begin(self._rows)
            case AttemptStarted(attempt=attempt):
                self._running.begin(attempt.trial.index, attempt.trial, now)
                self._nodes[attempt.node or ""] += 1
                self._attempt_started(attempt)
            case AttemptEnded(attempt=attempt):
                self._running.end(attempt.trial.index)
                self._nodes[attempt.node or ""] -= 1
                self._attempt_ended(event)
            case TrialEnded():
                self._running.end(event.trial.index)
                self._nodes[event.result.result.node or ""] -= 1
                self._eta_s = event.eta_s
                self._position = (event.done, event.total)
                self._trial_ended(event)
                self._say_what_setup_lost(event)
            case TrialSkipped():
                self._running.end(event.trial.index)
                self._skipped(event)
            case Capacity(node=None):
                self._capacity = event
            case HeldBack():
                self._held_back(event, now)
            case Notice():
                self._display.line(one_line(event.message, LONGEST_NOTICE), is_cut=False)
            case RunEnded():
                self.close()
                # What runs again for a gate is another run.
                self._numbers.clear()
        self._display.tick(now)

    def recall(self, trial: Trial, result: TrialResult) -> None:
        """Take in a result from before this run was resumed; its number is shown as it begins."""

    def tick(self, now: float) -> None:
        """Call this several times a second, with the time of the clock that `choose` was given."""
        is_log = self._display.is_begun and not self._display.is_live
        if is_log and now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            self._note(self._how_it_goes(now))
        self._display.tick(now)

    def close(self) -> None:
        """Leave the stream as it was found. May be called again."""
        for why, number in self._skips.items():
            if number and not self._display.is_live:
                words = f"{number:,} more skipped: {one_line(why, LONGEST_LABEL)}"
                self._display.line(self._prefix("skipped") + words)
        self._skips.clear()
        self._display.close()

    # ---- what a race words otherwise

    def _counts(self) -> list[CountPart]:
        done, total = self._position
        number = self._numbers
        return [
            CountPart(f"{done:>{len(str(total))}}/{total}"),
            CountPart(f"{number['passed']} passed", GREEN if number["passed"] else ""),
            CountPart(f"{number['failed']} failed", RED if number["failed"] else ""),
            CountPart(counted(number["error"], "error"), YELLOW if number["error"] else ""),
            CountPart(f"{number['skipped']} skipped" if number["skipped"] else "", DIM),
        ]

    def _prefix(self, mark: str, took: str = "") -> str:
        """How a line about a trial begins: with room for the time, so that all names begin in one
        column."""
        return f"{place(*self._position)} {self._marks[mark]} {took:>{TIME_WIDTH}}  "

    def _note(self, words: str) -> None:
        """A line about the run as a whole."""
        self._display.line(f"{place(*self._position)} … {words}")

    def _attempt_started(self, attempt: Attempt) -> None:
        if self._verbose:
            again = f"(attempt {attempt.number})" if attempt.number > 1 else ""
            where = "" if attempt.node is None else f"on {_node(attempt.node)}"
            self._say_of(attempt.trial, "start", " ".join(filter(None, (where, again))))

    def _attempt_ended(self, event: AttemptEnded) -> None:
        """It will be retried."""
        if self._verbose:
            self._say_retried(event)

    def _trial_ended(self, event: TrialEnded) -> None:
        result = event.result.result
        mark = "error" if result.outcome.is_error else str(result.outcome)
        self._numbers[mark] += 1
        if mark in ("passed", "skipped") and not self._verbose:
            return
        took = "" if result.outcome is Outcome.SKIPPED else duration(result.time_s)
        why = "" if result.outcome is Outcome.PASSED else how_it_ended(result)
        if result.outcome is Outcome.FAILED:
            why = one_line(reason(result), LONGEST_REASON)
        standing = self._standing(event)
        parts = (_label(event.trial), f"({standing})" if standing else "", why)
        self._display.line(self._prefix(mark, took) + "  ".join(filter(None, parts)))

    # ---- lines

    def _standing(self, event: TrialEnded) -> str:
        """`on b, ETA 8 s, $0.12 of $5.00`, for the line of a trial in a log: its node, then the
        whole run."""
        if self._display.is_live:
            return ""
        node = event.result.result.node
        where = "" if node is None else f"on {_node(node)}"
        left = eta(event.eta_s, event.done, event.total)
        return ", ".join(filter(None, (where, left, str(self._spending))))

    def _say_of(self, trial: Trial, mark: str, words: str) -> None:
        self._display.line(f"{self._prefix(mark)}{_label(trial)}  {words}".rstrip())

    def _say_retried(self, event: AttemptEnded) -> None:
        when = "when its account takes requests again"
        if event.retry_in_s is not None:
            when = f"in {duration(event.retry_in_s)} or later"
        self._say_of(event.attempt.trial, "again", f"{how_it_ended(event.result)}; retry {when}")

    def _say_what_setup_lost(self, event: TrialEnded) -> None:
        """Once: it means that the comparison may be of two equal sides."""
        for note in event.result.result.notes if self._tells_setup else ():
            if note.startswith((SETUP_UNDONE, SETUP_REMOVED)):
                self._tells_setup = False
                words = f"attempts do not see all that setup did: {note}"
                self._note(one_line(words, LONGEST_NOTICE))

    def _skipped(self, event: TrialSkipped) -> None:
        """There may be very many, for one reason: a log names the first, and counts the rest at the
        end; a bar only counts them."""
        self._numbers["skipped"] += 1
        if event.reason in self._skips:
            self._skips[event.reason] += 1
            return
        self._skips[event.reason] = 0
        if not self._display.is_live:
            self._say_of(
                event.trial, "skipped", f"skipped: {one_line(event.reason, LONGEST_REASON)}"
            )

    def _held_back(self, event: HeldBack, now: float) -> None:
        """A log names each reason once a minute; what is written every ten seconds has the first
        one anyway."""
        self._waits = event.waits
        for wait in () if self._display.is_live else event.waits:
            if now - self._waits_logged.get(wait.name, -math.inf) >= SAME_WAIT_EVERY_S:
                self._waits_logged[wait.name] = now
                self._note(wait.sentence)

    def _progress(self) -> tuple[int, int]:
        """What the bar shows."""
        return self._position

    def _how_it_goes(self, now: float) -> str:
        """`2 failed, 8 running, longest hello for 12 s, ETA 40 s, $0.12 of $5.00`, and what holds
        the others back."""
        # The line begins with how many are done.
        parts = [part.text for part in self._counts()[1:]]
        parts.append(f"{len(self._running)} running{self._where()}")
        if (longest := self._running.longest(now)) is not None:
            trial, for_s = longest
            parts.append(f"longest {_label(trial)} for {rough_time(for_s)}")
        parts += [eta(self._eta_s, *self._position), str(self._spending)]
        words = ", ".join(filter(None, parts))
        return "; ".join([words, *(wait.sentence for wait in self._still_waiting()[:1])])

    def _still_waiting(self) -> list[Wait]:
        """What was told last, as far as it can still be true."""
        done, total = self._position
        left = total - done - len(self._running)
        if left <= 0:
            return []
        return [replace(wait, trials=min(wait.trials, left)) for wait in self._waits]

    def _where(self) -> str:
        """` (6 of 20, memory) on a (3) and b (2)`, to follow what is running."""
        now, limited = self._capacity, ""
        if now is not None and now.held_by:
            limited = f" ({now.at_once:,} of {now.wanted:,}, {now.held_by})"
        busy = [
            f"{_node(name)} ({number})"
            for name, number in self._nodes.items()
            if name and number > 0
        ]
        return limited + (f" on {some(busy, MOST_NODES)}" if busy else "")

    # ---- rows

    def _rows(self, width: int) -> Sequence[str]:
        waiting = self._still_waiting()[:3]
        waits = (self._paint(self._fitted(one.sentence, width), DIM) for one in waiting)
        return self._row_of_counts(width), self._what_runs(width), *waits

    def _row_of_counts(self, width: int) -> str:
        done, total = self._progress()
        more = (CountPart(eta(self._eta_s, *self._position)), CountPart(str(self._spending)))
        parts = [part for part in (*self._counts(), *more) if part.text]
        counts = "  ".join(part.text for part in parts)
        room = width - columns(counts) - 2
        if room < SHORTEST_BAR:
            return self._fitted(counts, width)
        painted = "  ".join(self._paint(*part) for part in parts)
        return f"{self._bar(done / total if total else 1.0, min(room, LONGEST_BAR))}  {painted}"

    def _bar(self, share: float, width: int) -> str:
        if self._display.is_ascii:
            filled = int(share * (width - 2))
            return f"[{'#' * filled}{'-' * (width - 2 - filled)}]"
        filled = int(share * width)
        return self._paint("━" * filled, GREEN) + self._paint("─" * (width - filled), DIM)

    def _what_runs(self, width: int) -> str:
        if not self._running:
            return ""
        # Names beyond the end of the row need not be made.
        most = width // 3
        names = ", ".join(map(_label, self._running.first(most)))
        more = ", …" if len(self._running) > most else ""
        row = f"{len(self._running)} running{self._where()}: {names}{more}"
        return self._paint(self._fitted(row, width), DIM)

    def _fitted(self, row: str, width: int) -> str:
        return fit(row, width, is_ascii=self._display.is_ascii)

    def _paint(self, text: str, color: str) -> str:
        return f"{color}{text}{PLAIN}" if color and self._color and text else text


ProgressView = RunProgress | JsonEvents | NullObserver


def _label(trial: Trial) -> str:
    return one_line(trial.label, LONGEST_LABEL)


def _node(name: str) -> str:
    return one_line(name, LONGEST_NODE)


def how_it_ended(result: AttemptResult) -> str:
    """`timeout: not done after 10 s`."""
    why = one_line(reason(result), LONGEST_REASON)
    return str(result.outcome) if why in ("", result.outcome) else f"{result.outcome}: {why}"
