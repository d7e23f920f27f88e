"""What a report holds, whatever form it is then written in.

Trials are read from their source each time they are asked for, in plan order, and never all held:
a run may have 100,000 of them, with answers of a megabyte.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Protocol, TextIO

from paraval.records import AttemptRecord, RunInfo, TrialResult
from paraval.report.comparing.axes import comparisons_of
from paraval.report.comparing.cells import CaseBook
from paraval.report.comparing.comparison import Comparison
from paraval.report.gate import Gate, judge_gate, not_yet
from paraval.report.summary import Summary, summarise


class Source(Protocol):
    """Where a run is read from."""

    def info(self) -> RunInfo: ...

    def results(self) -> Iterator[TrialResult]:
        """From the first each time it is called, in plan order."""
        ...

    def attempts(self) -> Iterator[AttemptRecord]:
        """By plan order and number; none where nobody kept them."""
        ...


class Trials:
    """The results of a run, in plan order; read anew by each loop."""

    def __init__(self, source: Source, number: int) -> None:
        self._source = source
        self._number = number

    def __iter__(self) -> Iterator[TrialResult]:
        return iter(self._source.results())

    def __len__(self) -> int:
        return self._number


class Contents:
    """A run, its summary, its gate and its trials."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.run: RunInfo = source.info()

    @cached_property
    def _read(self) -> tuple[Summary, CaseBook]:
        """In one pass: a run may be long, and on a slow disk."""
        book = CaseBook()
        return summarise(_entered(self._source.results(), book), self.run), book

    @property
    def summary(self) -> Summary:
        return self._read[0]

    @property
    def book(self) -> CaseBook:
        """What each case came to, with each variant."""
        return self._read[1]

    @cached_property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Of the run's own variants."""
        return comparisons_of(self.book, self.run)

    @cached_property
    def gate(self) -> Gate:
        if self.run.running:
            return not_yet(self.summary)
        return judge_gate(self.summary, self.run.fail_under, self.run.interrupted)

    def attempts(self) -> Iterator[AttemptRecord]:
        """Read anew each time, by plan order and number."""
        return self._source.attempts()

    @property
    def trials(self) -> Trials:
        return Trials(self._source, self.summary.trials)


def _entered(results: Iterator[TrialResult], book: CaseBook) -> Iterator[TrialResult]:
    for result in results:
        book.add(result)
        yield result


class Format(Protocol):
    """A form that a report can be written in."""

    def write(self, contents: Contents, file: TextIO) -> None: ...
