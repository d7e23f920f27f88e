"""Progress as two lines at the foot of a terminal, redrawn in place and gone at the end.

Line one: a bar and counts. Line two: what runs now. Trials that did not pass are printed above,
once, as they end. It has no thread: it redraws when it is told something, at most ten times a
second, in one write, over what stood there, so that nothing flickers.
"""

from __future__ import annotations

import atexit
import os
import shutil
from collections.abc import Callable

from paraval.cli.progress.counts import MachineRoom, MoneySpent, RunningTrials
from paraval.cli.progress.lines import LONGEST_NOTICE, Pen, Wording, cut_to, shown_label
from paraval.records import (
    AttemptEnded,
    AttemptStarted,
    Capacity,
    Happening,
    Notice,
    Outcome,
    RunEnded,
    RunStarted,
    TrialEnded,
    TrialSkipped,
)
from paraval.text.terminal import columns, one_line
from paraval.text.words import rough_time

REDRAW_S = 0.1
WIDEST = 110
LONGEST_BAR = 40
SHORTEST_BAR = 8

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
TO_BLOCK_START = "\r\x1b[1A"
CLEAR_BELOW, CLEAR_TO_LINE_END = "\x1b[J", "\x1b[K"
GREEN, RED, YELLOW, DIM, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"


class Bar:
    """The bar, the counts, and what runs now."""

    def __init__(
        self, pen: Pen, *, verbose: bool, colour: bool, clock: Callable[[], float]
    ) -> None:
        self._pen = pen
        self._verbose = verbose
        self._colour = colour
        self._clock = clock
        self._wording = Wording(ascii_only=pen.is_ascii, tells_eta=False)
        self._running = RunningTrials()
        self._room = MachineRoom()
        self._spending = MoneySpent()
        self._counts = dict.fromkeys(("passed", "failed", "errors", "skipped"), 0)
        self._done = self._total = 0
        self._eta_s: float | None = None
        self._above: list[str] = []
        self._shown = False
        self._goes_on = False
        self._drawn_at = float("-inf")

    def __call__(self, event: Happening) -> None:
        self._spending.watch(event)
        match event:
            case TrialEnded():
                self._count(event)
            case TrialSkipped():
                # Very many may come at once, for one reason: they are only counted.
                self._running.end(event.trial)
                self._counts["skipped"] += 1
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
                self._above.append(one_line(event.message, LONGEST_NOTICE))
            case RunStarted():
                self._begin(event)
            case RunEnded():
                self.close()
        self._draw_if_due(self._clock())

    def tick(self, now: float) -> None:
        self._draw_if_due(now)

    def close(self) -> None:
        """Take the block away, and give the cursor back."""
        self._goes_on = False
        self._pen.write(self._take_away() + self._lines_above())
        atexit.unregister(self.close)

    def _begin(self, event: RunStarted) -> None:
        self._wording.started(event)
        self._done, self._total = event.already_done, event.total
        self._goes_on = True
        # However the program ends, the terminal gets its cursor back.
        atexit.register(self.close)

    def _count(self, event: TrialEnded) -> None:
        self._running.end(event.trial)
        self._done, self._total, self._eta_s = event.done, event.total, event.eta_s
        outcome = event.result.outcome
        self._counts["errors" if outcome.is_error else outcome] += 1
        if self._verbose or outcome not in (Outcome.PASSED, Outcome.SKIPPED):
            self._say(self._wording.trial_ended(event))

    def _say(self, line: str) -> None:
        """Above the bar, in one row: the report tells the rest of a long reason."""
        self._above.append(cut_to(line, _terminal_width(self._pen) - 1, self._pen))

    def _draw_if_due(self, now: float) -> None:
        if not self._goes_on:
            if self._above:
                self._pen.write(self._lines_above())
            return
        if now - self._drawn_at < REDRAW_S:
            return
        self._drawn_at = now
        self._pen.write(self._redrawn())

    def _redrawn(self) -> str:
        """All of a redraw in one string, so that no half of it is ever seen."""
        if self._above or not self._shown:
            start = self._take_away() + self._lines_above() + HIDE_CURSOR
        else:
            start = TO_BLOCK_START
        self._shown = True
        width = min(_terminal_width(self._pen), WIDEST + 1) - 1
        lines = (self._first_line(width), self._second_line(width))
        return start + "\r\n".join(line + CLEAR_TO_LINE_END for line in lines)

    def _take_away(self) -> str:
        was_shown, self._shown = self._shown, False
        return TO_BLOCK_START + CLEAR_BELOW + SHOW_CURSOR if was_shown else ""

    def _lines_above(self) -> str:
        lines, self._above = self._above, []
        return "".join(f"{self._pen.spell(line)}\r\n" for line in lines)

    def _first_line(self, width: int) -> str:
        counts = self._count_parts()
        said = "  ".join(text for text, _ in counts)
        room = width - columns(said) - 2
        if room < SHORTEST_BAR:
            return cut_to(said, width, self._pen)
        painted = "  ".join(self._paint(text, style) for text, style in counts)
        return f"{self._bar(min(room, LONGEST_BAR))}  {painted}"

    def _count_parts(self) -> list[tuple[str, str]]:
        counts = self._counts
        parts = [
            (f"{self._done:>{len(str(self._total))}}/{self._total}", ""),
            (f"{counts['passed']} passed", GREEN if counts["passed"] else ""),
            (f"{counts['failed']} failed", RED if counts["failed"] else ""),
            (_errors(counts["errors"]), YELLOW if counts["errors"] else ""),
        ]
        if counts["skipped"]:
            parts.append((f"{counts['skipped']} skipped", DIM))
        if self._eta_s is not None and self._done < self._total:
            parts.append((f"ETA {rough_time(self._eta_s)}", ""))
        if spent := str(self._spending):
            parts.append((spent, ""))
        return parts

    def _bar(self, width: int) -> str:
        share = self._done / self._total if self._total else 1.0
        if self._pen.is_ascii:
            filled = int(share * (width - 2))
            return f"[{'#' * filled}{'-' * (width - 2 - filled)}]"
        filled = int(share * width)
        return self._paint("━" * filled, GREEN) + self._paint("─" * (width - filled), DIM)

    def _second_line(self, width: int) -> str:
        count = len(self._running)
        if count == 0:
            return ""
        # Names beyond the line's end are not worth making.
        names = ", ".join(shown_label(trial) for trial in self._running.first(width // 3))
        more = ", …" if count > width // 3 else ""
        line = f"{count} running{self._room}: {names}{more}"
        return self._paint(cut_to(line, width, self._pen), DIM)

    def _paint(self, text: str, style: str) -> str:
        return f"{style}{text}{PLAIN}" if style and self._colour and text else text


def _errors(count: int) -> str:
    return "1 error" if count == 1 else f"{count} errors"


def _terminal_width(pen: Pen) -> int:
    try:
        return os.get_terminal_size(pen.stream.fileno()).columns or 80
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns
