"""Shows the progress of a parallel run, in addition to or instead of pytest's dots.

Called only in the main thread, and affects nothing. pytest's own reporter shows the results.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from paraval.pytest_plugin.models.item_outcomes import SCORE_PROPERTY, crash_line
from paraval.pytest_plugin.options import ProgressForm
from paraval.records import Outcome
from paraval.text.progress import Footer, ResultLines, Running, can_show, eta, place, shows_rows
from paraval.text.terminal import columns, cut_middle, one_line, printable, to_ascii
from paraval.text.words import counted, duration, rough_time

if TYPE_CHECKING:
    from paraval.records import AttemptResult, Failure

LONGEST_NAME = 60
LONGEST_REASON = 160
LONG_S = 2.0
"""Show the longest-running test once it takes this long."""
_SIGNS = {".": "✓", "F": "✗"}
_COLORS = {".": "green", "F": "red", "E": "red"}
"""Anything neither passed nor failed is yellow, as in pytest."""


Reports = Sequence[pytest.TestReport]


class Progress:
    """Receives the progress of the tests; this base class shows nothing but what must be said."""

    def __init__(self, reporter: Any = None) -> None:
        self._reporter = reporter

    def started(self, nodeid: str) -> None: ...

    def waits(self, nodeid: str, failure: Failure, seconds: float) -> None:
        """The attempt gave no verdict; the test starts again after `seconds`."""

    def ended(
        self, nodeid: str, reports: Reports, result: AttemptResult, eta_s: float | None
    ) -> None:
        """A test ended. `eta_s`: time until the last one ends; None: unknown."""

    def say(self, line: str) -> None:
        """Show something that users should know now, in a log as on a terminal."""
        if self._reporter is not None:
            # Dots of tests that ran beside others stand behind no file's name, so pytest itself
            # begins no new line.
            if self._reporter._tw.width_of_current_line:
                self._reporter._tw.line()
            self._reporter.write_line(line, yellow=True)

    def tick(self) -> None:
        """Called several times a second."""

    def close(self) -> None:
        """Restore the terminal. May be called repeatedly."""


def progress_for(
    config: pytest.Config,
    form: ProgressForm,
    nodeids: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
) -> Progress:
    """Create progress in the chosen form, if a reporter can show it."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or form is ProgressForm.NONE:
        return Progress(reporter)
    if form is ProgressForm.LINES:
        return Lines(reporter, nodeids)
    if _can_show_a_line(config, reporter, os.environ if environ is None else environ):
        return TerminalLine(reporter, nodeids)
    return Progress(reporter)


def _can_show_a_line(config: pytest.Config, reporter: Any, environ: Mapping[str, str]) -> bool:
    # CI services provide a terminal, but log it. With -s, tests write to the terminal themselves.
    return (
        _is_terminal(reporter)
        and shows_rows(environ)
        and not environ.get("NO_COLOR")
        and not environ.get("CI")
        and config.getoption("capture", "no") != "no"
    )


def _is_terminal(reporter: Any) -> bool:
    is_one = reporter.isatty
    # A plain attribute in pytest 8.
    return bool(is_one() if callable(is_one) else is_one)


# ---- one line at the bottom of a terminal


class TerminalLine(Progress):
    """A status line below pytest's output, removed at the end: `12/200 · 15 running · 2 waiting for
    openai (4 s) · 1 failed · 0:04 · ETA 8 s · longest: test_x 6 s`."""

    def __init__(
        self,
        reporter: Any,
        nodeids: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
        width: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(reporter)
        # Private, but stable for years, and there is no public access to the reporter's output.
        self._writer: Any = reporter._tw
        self._footer = Footer(self._writer._file, width)
        self._writer._file = self._footer
        self._names = names_of(nodeids)
        self._clock = clock
        self._began = clock()
        self._running = Running[str]()
        self._waiting: dict[str, tuple[str, float]] = {}
        """By node id: the account it waits for, and until when."""
        self._done = 0
        self._letters = Counter[str]()
        self._eta_s: float | None = None
        self._eta_at = self._began
        self._is_closed = False

    def started(self, nodeid: str) -> None:
        self._waiting.pop(nodeid, None)
        self._running.begin(nodeid, nodeid, self._clock())
        self.tick()

    def waits(self, nodeid: str, failure: Failure, seconds: float) -> None:
        self._running.end(nodeid)
        self._waiting[nodeid] = (refuser_in(failure), self._clock() + seconds)
        self.tick()

    def ended(
        self,
        nodeid: str,
        reports: Reports,
        result: AttemptResult,  # noqa: ARG002 - lines show it
        eta_s: float | None,
    ) -> None:
        self._running.end(nodeid)
        self._waiting.pop(nodeid, None)
        self._done += 1
        self._letters[letter_of(reports)] += 1
        self._eta_s, self._eta_at = eta_s, self._clock()
        self.tick()

    def tick(self) -> None:
        now = self._clock()
        if not self._is_closed and self._footer.is_due(now):
            self._footer.show(" · ".join(filter(None, self._parts(now))))

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._footer.show()
            self._writer._file = self._footer.file

    def _parts(self, now: float) -> Iterator[str]:
        yield f"{self._done}/{len(self._names)}"
        yield f"{len(self._running)} running"
        yield from self._waits(now)
        if failed := self._letters["F"]:
            yield f"{failed} failed"
        if errors := self._letters["E"]:
            yield counted(errors, "error")
        yield "{}:{:02}".format(*divmod(int(now - self._began), 60))
        if self._eta_s is not None:
            left_s = max(self._eta_s - (now - self._eta_at), 0.0)
            yield eta(left_s, self._done, len(self._names))
        longest = self._running.longest(now)
        if longest is not None and longest[1] >= LONG_S:
            nodeid, for_s = longest
            name = cut_middle(printable(self._names.get(nodeid, nodeid)), LONGEST_NAME)
            yield f"longest: {name} {int(for_s)} s"

    def _waits(self, now: float) -> Iterator[str]:
        """For each account that tests wait for: how many, and when the first continues."""
        untils: dict[str, list[float]] = {}
        for refuser, until in self._waiting.values():
            untils.setdefault(refuser, []).append(until)
        for refuser, times in untils.items():
            whom = refuser and f" for {printable(refuser)}"
            yield f"{len(times)} waiting{whom} ({rough_time(max(min(times) - now, 0.0))})"


# ---- one line per test


class Lines(Progress):
    """A line for each finished test instead of pytest's dots, for logs.

    `[ 3/20] ✓ test_basic  1.9 s  (ETA 8 s)`, and before that, for a test that has to wait,
    `test_basic: rate limited by openai, retrying in 4 s`. pytest's reporter still counts, and
    prints the summary.
    """

    def __init__(self, reporter: Any, nodeids: Sequence[str]) -> None:
        super().__init__(reporter)
        self._is_ascii = not can_show("✓✗…", reporter._tw._file)
        self._names = {nodeid: self._spelt(name) for nodeid, name in names_of(nodeids).items()}
        self._lines = ResultLines(max(map(columns, self._names.values()), default=0))
        self._done = 0
        self._is_begun = False
        self._refusals = Counter[str]()
        """By node id: how often it was refused."""
        self._dots = _Dots(reporter)

    def waits(self, nodeid: str, failure: Failure, seconds: float) -> None:
        self._refusals[nodeid] += 1
        why = failure.message
        if failure.kind is Outcome.RATE_LIMITED:
            why = f"rate limited by {refuser_in(failure) or 'a service'}"
        self._begin()
        line = f"{self._name(nodeid)}: {self._spelt_line(why)}, retrying in {rough_time(seconds)}\n"
        self._reporter.write(line, flush=True)

    def ended(
        self, nodeid: str, reports: Reports, result: AttemptResult, eta_s: float | None
    ) -> None:
        self._done += 1
        letter, total = letter_of(reports), len(self._names)
        left = eta(eta_s, self._done, total)
        tries = self._refusals[nodeid] + 1
        why = ""
        if letter in "FE":
            failed = next(report for report in reports if report.failed)
            why = self._spelt_line(crash_line(failed))
        scores = [str(text) for name, text in reports[-1].user_properties if name == SCORE_PROPERTY]
        rest = self._lines.line(
            self._name(nodeid),
            *map(self._spelt_line, scores),
            duration(result.duration_s),
            f"({left})" if left else "",
            f"(try {tries})" if tries > 1 else "",
            why,
        )
        sign = letter if self._is_ascii else _SIGNS.get(letter, letter)
        self._begin()
        self._reporter.write(f"{place(self._done, total)} ")
        self._reporter.write(sign, **{_COLORS.get(letter, "yellow"): True})
        self._reporter.write(f" {rest}\n", flush=True)

    def close(self) -> None:
        self._dots.bring_back()

    def _name(self, nodeid: str) -> str:
        return self._names.get(nodeid) or self._spelt(nodeid)

    def _spelt(self, name: str) -> str:
        shown = printable(name)
        mark = "..." if self._is_ascii else "…"
        return cut_middle(to_ascii(shown) if self._is_ascii else shown, LONGEST_NAME, mark)

    def _spelt_line(self, why: str) -> str:
        line = one_line(why, LONGEST_REASON)
        return to_ascii(line) if self._is_ascii else line

    def _begin(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._reporter.write_line("")


class _Dots:
    """Silences pytest's own progress until `bring_back`."""

    NAME = "paraval-no-dots"

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter
        self._manager: pytest.PytestPluginManager = reporter.config.pluginmanager
        self._manager.register(self, self.NAME)
        # There is no public way to turn off only these two: the percentage at the end of a line,
        # and the names written when a test starts.
        reporter._show_progress_info = False
        self._begins: Any = self._manager.hook.pytest_runtest_logstart
        self._hookimpls = [one for one in self._begins.get_hookimpls() if one.plugin is reporter]
        if self._hookimpls:
            self._begins._remove_plugin(reporter)

    def bring_back(self) -> None:
        if self._manager.has_plugin(self.NAME):
            self._manager.unregister(self)
            for one in self._hookimpls:
                self._begins._add_hookimpl(one)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """Count the test without showing it."""
        status = yield
        return (status[0], "", "") if status else status


# ---- names and letters


def names_of(nodeids: Sequence[str]) -> dict[str, str]:
    """Shorten `tests/test_x.py::test_basic` to `test_basic`, unless that is ambiguous."""
    short = {nodeid: nodeid.partition("::")[2] or nodeid for nodeid in nodeids}
    number = Counter(short.values())
    return {nodeid: nodeid if number[name] > 1 else name for nodeid, name in short.items()}


def refuser_in(failure: Failure) -> str:
    """The account that refused the test; empty: unknown."""
    return (failure.account or "").partition(":")[2]


def letter_of(reports: Reports) -> str:
    """pytest's letter for the outcome: `.`, F, E, s, x or X."""
    letter = "."
    for report in reports:
        if report.failed:
            return "F" if report.when == "call" else "E"
        was_xfail = hasattr(report, "wasxfail")
        if report.skipped:
            letter = "x" if was_xfail else "s"
        elif was_xfail and report.when == "call":
            letter = "X"
    return letter
