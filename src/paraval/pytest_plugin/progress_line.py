"""Progress as one line at the bottom of a terminal, below pytest's own, and gone at the end.

`12/200 · 15 running · 2 wait for openai (4 s) · 1 failed · 0:04 · ETA 8 s · longest: test_x 6 s`.
How it stays below is for `footer`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from paraval.amounts import rough_time
from paraval.pytest_plugin.footer import Footer
from paraval.pytest_plugin.progress import LONGEST_NAME, letter_of, names_of, refuser_in
from paraval.report.text import cut_middle, printable

if TYPE_CHECKING:
    from paraval.pytest_plugin.item_ends import ItemEnd
    from paraval.records import Failure

REDRAW_S = 0.1
LONG_S = 2.0
"""Which test runs longest is said from here on."""


class Line:
    """The line of a run."""

    def __init__(
        self,
        reporter: Any,
        nodeids: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
        width: Callable[[], int] | None = None,
    ) -> None:
        # Private, but so for many years, and there is no public way to what the reporter writes.
        self._writer: Any = reporter._tw
        self._footer = Footer(self._writer._file, width)
        self._writer._file = self._footer
        self._names = names_of(nodeids)
        self._clock = clock
        self._began = clock()
        self._drawn_at = float("-inf")
        self._running: dict[str, float] = {}
        """By node id, in the order of their starts: when that was."""
        self._waiting: dict[str, tuple[str, float]] = {}
        """By node id: for whom, and until when."""
        self._done = self._failed = self._errors = 0
        self._eta_s: float | None = None
        self._told_at = self._began
        self._is_closed = False

    def started(self, nodeid: str) -> None:
        self._waiting.pop(nodeid, None)
        self._running[nodeid] = self._clock()
        self.tick()

    def waits(self, nodeid: str, failure: Failure, seconds: float) -> None:
        self._running.pop(nodeid, None)
        self._waiting[nodeid] = (refuser_in(failure), self._clock() + seconds)
        self.tick()

    def ended(self, end: ItemEnd, eta_s: float | None) -> None:
        self._running.pop(end.item.nodeid, None)
        self._waiting.pop(end.item.nodeid, None)
        letter = letter_of(end)
        self._done += 1
        self._failed += letter == "F"
        self._errors += letter == "E"
        self._eta_s, self._told_at = eta_s, self._clock()
        self.tick()

    def tick(self) -> None:
        now = self._clock()
        if not self._is_closed and now - self._drawn_at >= REDRAW_S:
            self._drawn_at = now
            self._footer.show(self._text(now))

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._footer.show("")
            self._writer._file = self._footer.file

    def _text(self, now: float) -> str:
        parts = [f"{self._done}/{len(self._names)}", f"{len(self._running)} running"]
        parts += self._waits(now)
        if self._failed:
            parts.append(f"{self._failed} failed")
        if self._errors:
            parts.append("1 error" if self._errors == 1 else f"{self._errors} errors")
        parts.append("{}:{:02}".format(*divmod(int(now - self._began), 60)))
        if self._eta_s is not None and self._done < len(self._names):
            parts.append(f"ETA {rough_time(max(self._eta_s - (now - self._told_at), 0.0))}")
        # The first that still runs has run longest.
        for nodeid, began in self._running.items():
            if now - began >= LONG_S:
                name = cut_middle(printable(self._names.get(nodeid, nodeid)), LONGEST_NAME)
                parts.append(f"longest: {name} {int(now - began)} s")
            break
        return " · ".join(parts)

    def _waits(self, now: float) -> list[str]:
        """For each that tests wait for: how many do, and when the first goes on."""
        untils: dict[str, list[float]] = {}
        for refuser, until in self._waiting.values():
            untils.setdefault(refuser, []).append(until)
        return [
            f"{len(times)} {'waits' if len(times) == 1 else 'wait'}"
            f"{refuser and f' for {printable(refuser)}'} ({rough_time(max(min(times) - now, 0.0))})"
            for refuser, times in untils.items()
        ]
