"""What a report holds, whatever form it is then written in.

Trials are read from their source each time they are asked for, in plan order, and never all held:
a run may have 100,000 of them, with answers of a megabyte.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Protocol, TextIO

from paraval.records import RunInfo, TrialResult
from paraval.report.gate import Gate, judge_gate, not_yet
from paraval.report.summary import Summary, summarise


class Source(Protocol):
    """Where a run is read from."""

    def info(self) -> RunInfo: ...

    def results(self) -> Iterator[TrialResult]:
        """From the first each time it is called, in plan order."""
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
    def summary(self) -> Summary:
        return summarise(self._source.results(), self.run)

    @cached_property
    def gate(self) -> Gate:
        if self.run.running:
            return not_yet(self.summary)
        return judge_gate(self.summary, self.run.fail_under, self.run.interrupted)

    @property
    def trials(self) -> Trials:
        return Trials(self._source, self.summary.trials)


class Format(Protocol):
    """A form that a report can be written in."""

    def write(self, contents: Contents, file: TextIO) -> None: ...
