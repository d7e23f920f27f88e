"""Reads the runs of a history, each once, the oldest first; of two at a time it holds the cases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from paraval.errors import ParavalError
from paraval.records import RunInfo
from paraval.report.contents import Contents, Source
from paraval.report.history.changes import Made, changes_between, made_of
from paraval.report.history.records import Entry, standing_of
from paraval.report.history.shifts import shifts_between
from paraval.report.part import Choice, Part, axes_in


class Past:
    """What is known of the runs before the one that comes next."""

    def __init__(
        self,
        before: RunInfo | None = None,
        choice: Choice | None = None,
        *,
        tells_shifts: bool = True,
    ) -> None:
        """`before`: the run before all that are read, if there is one."""
        self._tells_shifts = tells_shifts
        self._choice = choice or {}
        self._made: Made | None = None if before is None else made_of(before.parts, ())
        self._last: str | None = None
        self._reference: tuple[Contents, Made] | None = None
        """The last complete run with a verdict."""
        self.unfitting = 0
        self.unreadable: dict[str, str] = {}

    def entries(self, sources: Iterable[Source]) -> Iterator[Entry]:
        """Of each source, oldest first; without those that cannot be read, and those without a
        trial that fits the choice."""
        for source in sources:
            run = source.info()
            try:
                contents = Contents(self._part(source))
                fits = len(contents.book) > 0 or not self._choice
            except ParavalError as error:
                self.unreadable[run.id] = error.message
                continue
            if fits:
                yield self.add(contents, run)
            else:
                self.unfitting += 1

    def add(self, contents: Contents, run: RunInfo) -> Entry:
        """The run that comes next. `run`: as a whole, where the contents are a part of it."""
        book = contents.book
        made = made_of(run.parts, (case for case, _ in book.rows()))
        entry = Entry(
            run=run,
            standing=standing_of(run),
            summary=contents.summary,
            cases=len(book),
            changes=() if self._made is None else tuple(changes_between(self._made, made)),
        )
        if self._tells_shifts and not entry.is_partial and entry.has_verdicts:
            entry = self._compared(entry, contents, made)
            self._reference = contents, made
        self._made, self._last = made, run.id
        return entry

    def _part(self, source: Source) -> Source:
        if not self._choice:
            return source
        return Part(source=source, choice=self._choice, axes=axes_in(source))

    def _compared(self, entry: Entry, contents: Contents, made: Made) -> Entry:
        if self._reference is None:
            return entry
        before, made_before = self._reference
        if not made.has_cases_of(made_before):
            return entry
        is_last = before.run.id == self._last
        shifts = shifts_between(before, contents, is_last=is_last)
        return replace(entry, compared_with=before.run.id, shifts=shifts)
