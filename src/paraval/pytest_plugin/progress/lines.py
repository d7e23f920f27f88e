"""Progress as one line for each test that ended, in the place of pytest's dots: for logs.

`[ 3/20] ✓ test_basic  1.9 s  (ETA 8 s)`, and before that, of one that has to wait,
`test_basic: refused by openai (rate limit), again in 4 s`. pytest's reporter still counts, and sums
up at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from paraval.pytest_plugin.models.test_outcomes import crash_line
from paraval.pytest_plugin.progress.progress import LONGEST_NAME, letter_of, names_of, refuser_in
from paraval.records import Outcome
from paraval.text.terminal import columns, cut_middle, one_line, printable, to_ascii
from paraval.text.words import duration, rough_time

if TYPE_CHECKING:
    from paraval.pytest_plugin.running.protocol import ItemResult
    from paraval.records import Failure

LONGEST_REASON = 160
_SIGNS = {".": "✓", "F": "✗"}
_COLOURS = {".": "green", "F": "red", "E": "red"}
"""What is neither passed nor failed is yellow, as pytest has it."""


class Lines:
    """A line for each test."""

    def __init__(self, reporter: Any, nodeids: Sequence[str]) -> None:
        self._reporter = reporter
        self._is_ascii = not _can_show("✓✗…", reporter)
        self._names = {nodeid: self._spelt(name) for nodeid, name in names_of(nodeids).items()}
        self._name_width = max(map(columns, self._names.values()), default=0)
        self._time_width = 0
        self._done = 0
        self._is_begun = False
        self._refusals: Counter[str] = Counter()
        """By node id: how often it was put off."""
        self._dots = _Dots(reporter)

    def started(self, nodeid: str) -> None:
        """A line is written at the end."""

    def waits(self, nodeid: str, failure: Failure, seconds: float) -> None:
        self._refusals[nodeid] += 1
        name = self._names.get(nodeid) or self._spelt(nodeid)
        why = failure.message
        if failure.kind is Outcome.RATE_LIMITED:
            why = f"refused by {refuser_in(failure) or 'a service'} (rate limit)"
        self._begin()
        told = f"{name}: {self._spelt_line(why)}, again in {rough_time(seconds)}\n"
        self._reporter.write(told, flush=True)

    def ended(self, end: ItemResult, eta_s: float | None) -> None:
        self._done += 1
        letter = letter_of(end)
        total, nodeid = str(len(self._names)), end.item.nodeid
        name = self._names.get(nodeid) or self._spelt(nodeid)
        took = duration(end.result.duration_s)
        self._time_width = max(self._time_width, len(took))
        rest = f" {name}{' ' * (self._name_width - columns(name))}  {took:>{self._time_width}}"
        if eta_s is not None and self._done < len(self._names):
            rest += f"  (ETA {rough_time(eta_s)})"
        if nodeid in self._refusals:
            rest += f"  (try {self._refusals[nodeid] + 1})"
        if letter in "FE":
            failed = next(phase.report for phase in end.phases if phase.report.failed)
            rest += f"  {self._spelt_line(crash_line(failed))}"
        self._begin()
        self._reporter.write(f"[{self._done:>{len(total)}}/{total}] ")
        self._reporter.write(self._sign(letter), **{_COLOURS.get(letter, "yellow"): True})
        self._reporter.write(f"{rest.rstrip()}\n", flush=True)

    def put_off(self, nodeid: str) -> None:
        """A line is written at the end."""

    def tick(self) -> None:
        """Nothing ended: nothing is said."""

    def close(self) -> None:
        self._dots.bring_back()

    def _sign(self, letter: str) -> str:
        return letter if self._is_ascii else _SIGNS.get(letter, letter)

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
    """pytest's own marks of progress, which are silent until they are brought back."""

    NAME = "paraval-no-dots"

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter
        self._manager: pytest.PytestPluginManager = reporter.config.pluginmanager
        self._manager.register(self, self.NAME)
        # Neither of the two can be turned off in public without turning off more: the percentage
        # at the end of a line, and the names that are written as a test begins.
        reporter._show_progress_info = False
        self._begins: Any = self._manager.hook.pytest_runtest_logstart
        self._told = [one for one in self._begins.get_hookimpls() if one.plugin is reporter]
        if self._told:
            self._begins._remove_plugin(reporter)

    def bring_back(self) -> None:
        if self._manager.has_plugin(self.NAME):
            self._manager.unregister(self)
            for one in self._told:
                self._begins._add_hookimpl(one)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """Counted, but not shown."""
        status = yield
        return (status[0], "", "") if status else status


def _can_show(signs: str, reporter: Any) -> bool:
    file = reporter._tw._file
    try:
        signs.encode(getattr(file, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
