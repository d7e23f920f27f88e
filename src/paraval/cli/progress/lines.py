"""Progress as lines, one for each trial that ended: for logs, and for plain terminals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TextIO

from paraval.cli.progress.counts import MachineRoom, MoneySpent, RunningTrials, Skips
from paraval.records import (
    AttemptEnded,
    AttemptStarted,
    Capacity,
    Happening,
    Notice,
    Outcome,
    RunEnded,
    RunStarted,
    Trial,
    TrialEnded,
    TrialSkipped,
)
from paraval.text.terminal import columns, cut, one_line, to_ascii
from paraval.text.words import duration, reason, rough_time

QUIET_S = 60.0
"""After so long without a line, one tells that the run is alive."""
LONGEST_LABEL = 60
LONGEST_REASON = 160
LONGEST_NOTICE = 1000
SIGNS = "✓✗–·…→↻━─"  # noqa: RUF001 - the dash is meant


class Pen:
    """A stream that is written to line by line, in what characters it can show; never raises."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.is_ascii = not _can_show(SIGNS, stream)
        self._gone = False

    def write(self, text: str) -> None:
        if self._gone:
            return
        try:
            self.stream.write(text)
            self.stream.flush()
        except BlockingIOError:
            pass  # A child made the terminal non-blocking, and it is full: this piece is lost.
        except (OSError, ValueError):
            # The reader went away, or the stream is closed: the run goes on without an onlooker.
            self._gone = True

    def line(self, text: str) -> None:
        self.write(self.spell(text) + "\n")

    def spell(self, text: str) -> str:
        return to_ascii(text) if self.is_ascii else text


def _can_show(signs: str, stream: TextIO) -> bool:
    try:
        signs.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError, TypeError):
        return False
    return True


class Wording:
    """What there is to say of an event, in one line each."""

    def __init__(self, *, ascii_only: bool, tells_eta: bool) -> None:
        self._tells_eta = tells_eta
        self._marks = _ASCII_MARKS if ascii_only else _MARKS
        self.spending = MoneySpent()
        self._total = 0
        self._done = 0
        # Columns are as wide as what was seen so far: the names to come are not known here.
        self._label_width = 0
        self._time_width = 0

    def started(self, event: RunStarted) -> None:
        self._total, self._done = event.total, event.already_done

    def trial_ended(self, event: TrialEnded) -> str:
        self._total, self._done = event.total, event.done
        outcome = event.result.outcome
        label = shown_label(event.trial)
        width = _width(label)
        self._label_width = max(self._label_width, width)
        ran = outcome is not Outcome.SKIPPED
        took = duration(event.result.result.duration_s) if ran else ""
        self._time_width = max(self._time_width, len(took))
        parts = [
            f"{self._place()} {self._mark(outcome)} {label}{' ' * (self._label_width - width)}",
            f"{took:>{self._time_width}}",
        ]
        if self._tells_eta and (standing := self._standing(event)):
            parts.append(f"({standing})")
        why = self._why(event)
        if why:
            parts.append(why)
        return "  ".join(parts).rstrip()

    def _standing(self, event: TrialEnded) -> str:
        """`ETA 8 s, $0.12 of $5.00`: of the whole run."""
        goes_on = event.eta_s is not None and event.done < event.total
        eta = f"ETA {rough_time(event.eta_s or 0.0)}" if goes_on else ""
        return ", ".join(filter(None, (eta, str(self.spending))))

    def trial_skipped(self, event: TrialSkipped) -> str:
        label = _padded(shown_label(event.trial), self._label_width)
        why = one_line(event.reason, LONGEST_REASON)
        return f"{self._place()} {self._marks['skipped']} {label}  skipped: {why}"

    def more_skipped(self, number: int, reason: str) -> str:
        """The reason only as far as it tells which one: it was told with the first."""
        why = one_line(reason, LONGEST_LABEL)
        return f"{self._place()} {self._marks['skipped']} {number:,} more skipped: {why}"

    def attempt_started(self, event: AttemptStarted) -> str:
        attempt = event.attempt
        again = f"  (attempt {attempt.number})" if attempt.number > 1 else ""
        return f"{self._place()} {self._marks['start']} {shown_label(attempt.trial)}{again}"

    def attempt_retried(self, event: AttemptEnded) -> str:
        outcome = event.result.outcome
        why = one_line(reason(event.result), LONGEST_REASON)
        told = str(outcome) if why in ("", outcome) else f"{outcome}: {why}"
        return (
            f"{self._place()} {self._marks['again']} {shown_label(event.attempt.trial)}"
            f"  {told}; again in {duration(event.retry_in_s)}"
        )

    def still_running(self, running: RunningTrials, room: MachineRoom, now: float) -> str:
        longest = running.longest(now)
        if longest is None:
            return f"{self._place()} … nothing runs just now, and the run waits"
        trial, for_s = longest
        return (
            f"{self._place()} … {len(running)} running{room}, "
            f"longest {shown_label(trial)} for {rough_time(for_s)}"
        )

    def held(self, capacity: Capacity) -> str:
        if not capacity.held_by:
            return f"{self._place()} … nothing holds the run back any more"
        return (
            f"{self._place()} … {capacity.at_once:,} of {capacity.wanted:,} at once: "
            f"{capacity.held_by} holds back the others"
        )

    def _why(self, event: TrialEnded) -> str:
        outcome = event.result.outcome
        if outcome is Outcome.PASSED:
            return ""
        why = one_line(reason(event.result.result), LONGEST_REASON)
        if outcome is Outcome.FAILED or why == outcome:
            return why
        return f"{outcome}: {why}" if why else str(outcome)

    def _mark(self, outcome: Outcome) -> str:
        return self._marks["error" if outcome.is_error else outcome]

    def _place(self) -> str:
        total = str(self._total)
        return f"[{self._done:>{len(total)}}/{total}]"


_MARKS = {"passed": "✓", "failed": "✗", "error": "!", "skipped": "–", "start": "→", "again": "↻"}  # noqa: RUF001 - the dash is meant
_ASCII_MARKS = {
    "passed": "ok  ",
    "failed": "FAIL",
    "error": "ERR ",
    "skipped": "skip",
    "start": "run ",
    "again": "again",
}


class ProgressLines:
    """A line for each trial that ended, and one a minute when none does."""

    def __init__(self, pen: Pen, *, verbose: bool, clock: Callable[[], float]) -> None:
        self._pen = pen
        self._verbose = verbose
        self._clock = clock
        self._wording = Wording(ascii_only=pen.is_ascii, tells_eta=True)
        self._running = RunningTrials()
        self._room = MachineRoom()
        self._skips = Skips()
        self._last_line_at = clock()
        self._goes_on = False

    def __call__(self, event: Happening) -> None:
        self._wording.spending.watch(event)
        match event:
            case TrialEnded():
                self._running.end(event.trial)
                self._say(self._wording.trial_ended(event))
            case TrialSkipped():
                self._running.end(event.trial)
                if self._skips.is_first(event.reason, self._clock()):
                    self._say(self._wording.trial_skipped(event))
            case AttemptStarted():
                self._running.begin(event.attempt.trial, self._clock())
                if self._verbose:
                    self._say(self._wording.attempt_started(event))
            case AttemptEnded():
                self._running.end(event.attempt.trial)
                if self._verbose:
                    self._say(self._wording.attempt_retried(event))
            case Capacity():
                self._room.watch(event, self._clock())
            case Notice():
                self._say(one_line(event.message, LONGEST_NOTICE))
            case RunStarted():
                self._wording.started(event)
                self._last_line_at = self._clock()
                self._goes_on = True
            case RunEnded():
                self.close()

    def tick(self, now: float) -> None:
        self._say_more_skipped(now)
        if self._goes_on and (told := self._room.take(now)) is not None:
            self._say(self._wording.held(told))
        if self._goes_on and now - self._last_line_at >= QUIET_S:
            self._pen.line(self._wording.still_running(self._running, self._room, now))
            self._last_line_at = now

    def close(self) -> None:
        self._goes_on = False
        self._say_more_skipped(math.inf)

    def _say_more_skipped(self, now: float) -> None:
        for number, why in self._skips.take(now):
            self._say(self._wording.more_skipped(number, why))

    def _say(self, line: str) -> None:
        self._pen.line(line)
        self._last_line_at = self._clock()


def shown_label(trial: Trial) -> str:
    label = trial.label
    if len(label) <= LONGEST_LABEL and _is_simple(label):
        return label
    return one_line(label, LONGEST_LABEL)


def _width(text: str) -> int:
    return len(text) if _is_simple(text) else columns(text)


_SIMPLE = re.compile(f"[ -~{SIGNS}]*")


def _is_simple(text: str) -> bool:
    """Printable ASCII and our own signs: one column each, and nothing needs to be looked up."""
    return _SIMPLE.fullmatch(text) is not None


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def cut_to(text: str, width: int, pen: Pen) -> str:
    """A line as the pen spells it, in at most so many columns."""
    spelt = pen.spell(text)
    if _width(spelt) <= width:
        return spelt
    return cut(spelt, width, "..." if pen.is_ascii else "…")
