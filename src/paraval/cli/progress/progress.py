"""Shows a run while it is running: as a bar, as lines, or as JSON.

`RunProgress` receives every Happening and, several times a second, the time. It counts, and passes
lines and rows to a `Display`. A `Story` words each event: that of a suite is here, that of a race
in `race_progress`. Results are left to the report.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

from paraval.cli.error_messages import talk
from paraval.cli.options import PROGRESS_MODES
from paraval.cli.progress.json_events import JsonEvents
from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.records import (
    SETUP_REMOVED,
    SETUP_UNDONE,
    AttemptEnded,
    AttemptResult,
    AttemptStarted,
    Capacity,
    Happening,
    HeldBack,
    NodeChanged,
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
HELD_S = 5.0
"""A log mentions what limits the run once it has lasted this long."""
SKIPS_TOGETHER_S = 1.0
"""Trials that are skipped within this long of one another share a line."""
TIME_WIDTH = len("9 min 59 s")
LONGEST_LABEL = 60
LONGEST_REASON = 160
LONGEST_NOTICE = 1000
LONGEST_NODE = 30
MOST_NODES = 8
"""Nodes of a cluster that have a row of their own."""
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
    "measured": "·",
}
ASCII_MARKS = {
    "passed": "ok  ",
    "failed": "FAIL",
    "error": "ERR ",
    "skipped": "skip",
    "start": "run ",
    "again": "redo",
    "new": "new ",
    "measured": "    ",
}


class StoryLine(NamedTuple):
    """A line to print."""

    mark: str
    """A key of `MARKS`."""
    text: str


class CountPart(NamedTuple):
    """A part of the row of counts, and its color."""

    text: str
    color: str = ""


class Story(Protocol):
    """Words the events of a run."""

    minor: frozenset[str]
    """Marks of lines that are left out unless verbose: the counts show them."""
    is_brief: bool
    """Whether they are left out of a log, too."""
    hidden: frozenset[str]
    """Marks of lines to leave out."""
    noun: str
    """`run` or `race`."""
    tells_retries: bool
    """Whether a log shows retries even if it is not verbose."""
    tells_holds: bool
    """Whether a log shows what limits the run."""

    def tell(self, event: Happening, standing: str = "") -> Iterable[StoryLine]:
        """The lines for an event; `standing`: ETA and cost, for the lines of a log."""

    def recall(self, trial: Trial, result: TrialResult) -> None:
        """Take in a result from before this run was resumed."""

    def prefix(self, mark: str) -> str:
        """How a line about a trial begins."""

    def note(self, words: str) -> str:
        """A line about the run as a whole."""

    @property
    def position(self) -> tuple[int, int]:
        """How many are done, and how many there are: what the bar shows."""

    def counts(self, elapsed_s: float) -> list[CountPart]: ...


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
    story: Callable[[bool], Story] | None = None,
) -> ProgressView:
    """The view for a mode: `auto` is a bar on a terminal that can show one, else lines.

    `story` is called with whether the stream takes only ASCII; None: the story of a suite.
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
    return RunProgress(
        display,
        (story or SuiteStory)(display.is_ascii),
        verbose=verbose,
        color=not environ.get("NO_COLOR"),
        clock=clock,
    )


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


class RunProgress:
    """Shows a run on a display: as lines, or as a bar with counts and what is running.

    Only what did not pass gets a line of its own; a log gets a line with the counts every ten
    seconds.
    """

    def __init__(
        self,
        display: Display,
        story: Story,
        *,
        verbose: bool,
        color: bool,
        clock: Callable[[], float],
    ) -> None:
        self._display = display
        self._story = story
        self._verbose = verbose
        self._color = color
        self._clock = clock
        is_brief = not verbose and (display.is_live or story.is_brief)
        story.hidden = story.minor if is_brief else frozenset()
        self._tells_retries = verbose or (story.tells_retries and not display.is_live)
        self._running = Running[Trial]()
        self._holds = Holds()
        self._waits: tuple[Wait, ...] = ()
        """What holds trials back."""
        self._waits_logged: dict[str, float] = {}
        """When a log last named each of them."""
        self._skips = Skips()
        self._spending = Spending()
        self._nodes = NodeCounts()
        self._tells_setup = True
        self._eta_s: float | None = None
        self._began_at = self._logged_at = clock()

    def __call__(self, event: Happening) -> None:
        now = self._clock()
        self._spending.watch(event)
        self._nodes.watch(event)
        for line in self._story.tell(event, self._standing(event)):
            self._display.line(line.text)
        match event:
            case TrialEnded():
                self._eta_s = event.eta_s
                self._running.end(event.trial.index)
                self._say_what_setup_lost(event)
            case TrialSkipped():
                self._running.end(event.trial.index)
                self._say_skipped(event, now)
            case AttemptStarted(attempt=attempt):
                self._running.begin(attempt.trial.index, attempt.trial, now)
                if self._verbose:
                    again = f"(attempt {attempt.number})" if attempt.number > 1 else ""
                    where = "" if attempt.node is None else f"on {_node(attempt.node)}"
                    self._say_of(attempt.trial, "start", " ".join(filter(None, (where, again))))
            case AttemptEnded():
                self._running.end(event.attempt.trial.index)
                if self._tells_retries:
                    why = how_it_ended(event.result)
                    self._say_of(event.attempt.trial, "again", f"{why}; {_retry_words(event)}")
            case Capacity() | HeldBack():
                self._watch_limits(event, now)
            case Notice():
                self._display.line(one_line(event.message, LONGEST_NOTICE), is_cut=False)
            case RunStarted():
                self._began_at = self._logged_at = now
                self._display.begin(self._rows)
            case RunEnded():
                self.close()
        self._display.tick(now)

    def recall(self, trial: Trial, result: TrialResult) -> None:
        """Take in a result from before this run was resumed."""
        self._story.recall(trial, result)

    def tick(self, now: float) -> None:
        """Call this several times a second, with the time of the clock that `choose` was given."""
        if not self._display.is_live:
            self._say_more_skipped(now)
            if self._display.is_begun:
                self._say_how_it_goes(now)
        self._display.tick(now)

    def close(self) -> None:
        """Leave the stream as it was found. May be called again."""
        self._say_more_skipped(math.inf)
        self._display.close()

    # ---- lines

    def _standing(self, event: Happening) -> str:
        """`on b, ETA 8 s, $0.12 of $5.00`, for the line of a trial in a log: its node, then the
        whole run."""
        if self._display.is_live or not isinstance(event, TrialEnded):
            return ""
        node = event.result.result.node
        where = "" if node is None else f"on {_node(node)}"
        left = eta(event.eta_s, event.done, event.total)
        return ", ".join(filter(None, (where, left, str(self._spending))))

    def _say_of(self, trial: Trial, mark: str, words: str) -> None:
        self._display.line(f"{self._story.prefix(mark)}{_label(trial)}  {words}".rstrip())

    def _say_what_setup_lost(self, event: TrialEnded) -> None:
        """Once: it means that the comparison may be of two equal sides."""
        for note in event.result.result.notes if self._tells_setup else ():
            if note.startswith((SETUP_UNDONE, SETUP_REMOVED)):
                self._tells_setup = False
                words = f"attempts do not see all that setup did: {note}"
                self._display.line(one_line(self._story.note(words), LONGEST_NOTICE), is_cut=False)

    def _say_skipped(self, event: TrialSkipped, now: float) -> None:
        # There may be very many, for one reason: above a bar, they are only counted.
        if not self._display.is_live and self._skips.is_first(event.reason, now):
            self._say_of(event.trial, "skipped", _skipped(event.reason, LONGEST_REASON))

    def _say_more_skipped(self, now: float) -> None:
        for number, why in self._skips.take(now):
            words = f"{number:,} more {_skipped(why, LONGEST_LABEL)}"
            self._display.line(self._story.prefix("skipped") + words)

    def _say_how_it_goes(self, now: float) -> None:
        story = self._story
        if story.tells_holds and (capacity := self._holds.take(now)) is not None:
            words = f"the {story.noun} is no longer limited"
            if capacity.held_by:
                at_once = f"{capacity.at_once:,} of {capacity.wanted:,} in parallel"
                words = f"{at_once}: limited by {capacity.held_by}"
            self._display.line(story.note(words))
        if now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            self._display.line(story.note(self._how_it_goes(now)))

    def _how_it_goes(self, now: float) -> str:
        """`12 of 60 done, 2 failed, 8 running, longest hello for 12 s, ETA 40 s, $0.12 of $5.00`,
        and what holds the others back."""
        done, total = self._story.position
        # The line begins with how many are done.
        counts = [part.text for part in self._story.counts(now - self._began_at)[1:]]
        parts = [*counts, f"{len(self._running)} running{self._holds}{self._nodes}"]
        if (longest := self._running.longest(now)) is not None:
            trial, for_s = longest
            parts.append(f"longest {_label(trial)} for {rough_time(for_s)}")
        parts += [eta(self._eta_s, done, total), str(self._spending)]
        words = ", ".join(filter(None, parts))
        return "; ".join([words, *(wait.sentence for wait in self._still_waiting()[:1])])

    def _still_waiting(self) -> list[Wait]:
        """What was told last, as far as it can still be true."""
        done, total = self._story.position
        left = total - done - len(self._running)
        if left <= 0:
            return []
        return [replace(wait, trials=min(wait.trials, left)) for wait in self._waits]

    def _watch_limits(self, event: Capacity | HeldBack, now: float) -> None:
        """A log names each reason once a minute; what is written every ten seconds has the first
        one anyway."""
        if isinstance(event, Capacity):
            if event.node is None:
                self._holds.watch(event, now)
            return
        self._waits = event.waits
        for wait in () if self._display.is_live else event.waits:
            if now - self._waits_logged.get(wait.name, -math.inf) >= SAME_WAIT_EVERY_S:
                self._waits_logged[wait.name] = now
                self._display.line(self._story.note(wait.sentence))

    # ---- rows

    def _rows(self, width: int) -> Sequence[str]:
        nodes = (self._paint(self._fitted(row, width), DIM) for row in self._nodes.rows())
        waiting = self._still_waiting()[:3]
        waits = (self._paint(self._fitted(one.sentence, width), DIM) for one in waiting)
        return self._counts(width), self._what_runs(width), *waits, *nodes

    def _counts(self, width: int) -> str:
        done, total = self._story.position
        parts = [
            *self._story.counts(self._clock() - self._began_at),
            CountPart(eta(self._eta_s, done, total)),
            CountPart(str(self._spending)),
        ]
        counts = "  ".join(part.text for part in parts if part.text)
        room = width - columns(counts) - 2
        if room < SHORTEST_BAR:
            return self._fitted(counts, width)
        painted = "  ".join(self._paint(*part) for part in parts if part.text)
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
        row = f"{len(self._running)} running{self._holds}: {names}{more}"
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


def _retry_words(event: AttemptEnded) -> str:
    if event.retry_in_s is None:
        return "retry when its account takes requests again"
    return f"retry in {duration(event.retry_in_s)} or later"


def _skipped(why: str, longest: int) -> str:
    return f"skipped: {one_line(why, longest)}"


def how_it_ended(result: AttemptResult) -> str:
    """`timeout: not done after 10 s`."""
    why = one_line(reason(result), LONGEST_REASON)
    return str(result.outcome) if why in ("", result.outcome) else f"{result.outcome}: {why}"


class SuiteStory:
    """Words the events of a suite's run: one line for each trial that ended."""

    minor = frozenset(("passed", "skipped"))
    is_brief = True
    noun = "run"
    tells_retries = False
    tells_holds = True

    def __init__(self, ascii_only: bool) -> None:
        self.hidden = frozenset[str]()
        self.position = (0, 0)
        self._marks = ASCII_MARKS if ascii_only else MARKS
        self._counts = Counter[str]()

    def tell(self, event: Happening, standing: str = "") -> Iterable[StoryLine]:
        match event:
            case TrialEnded(result=result):
                mark = "error" if result.outcome.is_error else str(result.outcome)
                self._counts[mark] += 1
                self.position = (event.done, event.total)
                if mark not in self.hidden:
                    return (StoryLine(mark, self._ended(event, mark, standing)),)
            case TrialSkipped():
                self._counts["skipped"] += 1
            case RunStarted():
                self.position = (event.already_done, event.total)
        return ()

    def recall(self, trial: Trial, result: TrialResult) -> None:
        """Do nothing: their number is shown as the run begins."""

    def prefix(self, mark: str) -> str:
        """With room for the time, so that all names begin in one column."""
        return self._begin(mark, "")

    def note(self, words: str) -> str:
        return f"{place(*self.position)} … {words}"

    def counts(self, elapsed_s: float) -> list[CountPart]:  # noqa: ARG002 - a race shows it
        done, total = self.position
        number = self._counts
        parts = [
            CountPart(f"{done:>{len(str(total))}}/{total}"),
            CountPart(f"{number['passed']} passed", GREEN if number["passed"] else ""),
            CountPart(f"{number['failed']} failed", RED if number["failed"] else ""),
            CountPart(counted(number["error"], "error"), YELLOW if number["error"] else ""),
        ]
        if number["skipped"]:
            parts.append(CountPart(f"{number['skipped']} skipped", DIM))
        return parts

    def _ended(self, event: TrialEnded, mark: str, standing: str) -> str:
        result = event.result.result
        took = "" if result.outcome is Outcome.SKIPPED else duration(result.time_s)
        why = "" if result.outcome is Outcome.PASSED else how_it_ended(result)
        if result.outcome is Outcome.FAILED:
            why = one_line(reason(result), LONGEST_REASON)
        parts = (_label(event.trial), f"({standing})" if standing else "", why)
        return self._begin(mark, took) + "  ".join(filter(None, parts))

    def _begin(self, mark: str, took: str) -> str:
        return f"{place(*self.position)} {self._marks[mark]} {took:>{TIME_WIDTH}}  "


# ---- counts


class Holds:
    """How many the machine lets run in parallel, and what prevents more."""

    def __init__(self) -> None:
        self._capacity: Capacity | None = None
        self._since = 0.0
        self._shown: str | None = None

    def watch(self, capacity: Capacity, now: float) -> None:
        before, self._capacity = self._held_by, capacity
        if self._held_by != before:
            self._since = now

    def take(self, now: float) -> Capacity | None:
        """What to show in a log: a limit other than the last one shown, if it lasts."""
        if self._held_by == self._shown or now - self._since < HELD_S:
            return None
        self._shown = self._held_by
        return self._capacity

    @property
    def _held_by(self) -> str | None:
        return (self._capacity and self._capacity.held_by) or None

    def __str__(self) -> str:
        """` (6 of 20, memory)`, to follow what is running; empty if nothing limits the run."""
        now = self._capacity
        if now is None or not now.held_by:
            return ""
        return f" ({now.at_once:,} of {now.wanted:,}, {now.held_by})"


class NodeCounts:
    """How many attempts run on each node of a cluster, and how many trials each has done."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        """By node, in the order in which they joined; 0: it left."""
        self._limited: dict[str, Capacity] = {}
        self._where: dict[int, str] = {}
        """By the index of a running trial."""
        self._running = Counter[str]()
        self._done = Counter[str]()

    def watch(self, event: Happening) -> None:
        match event:
            case NodeChanged():
                self._slots[event.node] = event.slots
                self._limited.pop(event.node, None)
            case Capacity(node=str(limited)):
                self._limited[limited] = event
            case AttemptStarted(attempt=attempt) if attempt.node is not None:
                self._where[attempt.trial.index] = attempt.node
                self._running[attempt.node] += 1
            case AttemptEnded(attempt=attempt):
                self._end(attempt.trial.index)
            case TrialSkipped() | TrialEnded():
                self._end(event.trial.index)
                if isinstance(event, TrialEnded) and (node := event.result.result.node) is not None:
                    self._done[node] += 1

    def _end(self, index: int) -> None:
        if (node := self._where.pop(index, None)) is not None:
            self._running[node] -= 1

    def _names(self) -> list[str]:
        """Every node so far; those that left come last."""
        names = dict.fromkeys((*self._slots, *self._running, *self._done))
        return sorted(names, key=lambda name: self._slots.get(name) == 0)

    def rows(self) -> Iterator[str]:
        """`a  3/8 running  34 done  limited by memory`, for the first nodes; there are never fewer
        than before."""
        names = self._names()
        shown = names[:MOST_NODES]
        width = max((columns(_node(name)) for name in shown), default=0)
        for name in shown:
            slots, running = self._slots.get(name), self._running[name]
            held_by = ""
            if slots and (now := self._limited.get(name)) is not None and now.held_by:
                slots, held_by = now.at_once, f"  limited by {now.held_by}"
            at_most = f"/{slots}" if slots else ""
            state = "left" if slots == 0 and not running else f"{running}{at_most} running"
            label = _node(name)
            name_column = f"{label}{' ' * (width - columns(label))}"
            yield f"  {name_column}  {state:<15}  {self._done[name]} done{held_by}"
        if len(names) > MOST_NODES:
            yield f"  and {counted(len(names) - MOST_NODES, 'more node')}"

    def __str__(self) -> str:
        """` on a (3) and b (2)`, to follow what is running; empty if nothing runs on nodes."""
        busy = [f"{_node(name)} ({number})" for name, number in self._running.items() if number]
        return f" on {some(busy, MOST_NODES)}" if busy else ""


class Skips:
    """Skipped trials: the first for a reason is shown immediately, the others together."""

    def __init__(self) -> None:
        self._unshown: dict[str, int] = {}
        self._last_at = 0.0

    def is_first(self, reason: str, now: float) -> bool:
        """Count one more; return whether it is the first that was skipped for this reason."""
        is_first = reason not in self._unshown
        self._unshown[reason] = 0 if is_first else self._unshown[reason] + 1
        self._last_at = now
        return is_first

    def take(self, now: float) -> list[tuple[int, str]]:
        """How many are not shown yet, and why, once no more have come for a while."""
        if now - self._last_at < SKIPS_TOGETHER_S:
            return []
        taken = [(number, reason) for reason, number in self._unshown.items() if number]
        self._unshown.update(dict.fromkeys(self._unshown, 0))
        return taken
